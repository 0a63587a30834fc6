"""The gates from outside: models of the custom resources and the encoding of messages."""
