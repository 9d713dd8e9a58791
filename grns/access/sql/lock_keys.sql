-- Keeps other transactions from creating keys until this one ends.
lock table grns.api_keys in share row exclusive mode
