"""The zones that are open on this agent, from what opens them to what they have synced."""
