-- Lets nobody else make a key until the transaction ends.
lock table grns.api_keys in share row exclusive mode
