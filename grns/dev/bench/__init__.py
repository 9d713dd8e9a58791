"""`grns admin bench`: measure grns on the user's own servers, in a workspace of its own."""
