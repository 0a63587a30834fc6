"""Messages for the user."""
