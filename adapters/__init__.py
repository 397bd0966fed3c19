"""One file a platform; each speaks its protocol and knows nothing of the core but `gateway.channel`."""
