"""What a stranger wrote, as it may be shown on a terminal."""

LONGEST_TEXT = 500


def plain_text(text: str) -> str:
    """In one line, with nothing that moves the cursor, and not long."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_TEXT])
    return f"{shown}…" if len(text) > LONGEST_TEXT else shown
