"""What retention deletes, written out before, and read again: files of JSON lines with a manifest each."""
