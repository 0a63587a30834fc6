"""The members of a cluster, as its master knows them: registration, state, place, free room."""
