"""The members of a cluster, as its master knows them: registered, online, where, how full."""
