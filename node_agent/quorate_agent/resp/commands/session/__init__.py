"""The commands that concern one connection: its settings, subscriptions, cached keys, MULTI."""
