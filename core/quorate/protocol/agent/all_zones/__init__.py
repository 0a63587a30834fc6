"""All zones of an agent together: their opening and waking, and the limit on what is set aside."""
