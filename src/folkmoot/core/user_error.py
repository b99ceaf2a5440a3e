"""What went wrong and can be put right by whoever started the program."""


class UserError(Exception):
    """Its message is a sentence for the user: what was wrong, where, and what to do.

    Commands end with that sentence, not with a traceback.
    """
