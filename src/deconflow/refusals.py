"""The refusal of what cannot be meant, for errors whose words cost next to nothing to make."""


def refuse_if(wrong: object, words: str, error: type[Exception] = ValueError) -> None:
    """Raise an error with these words if something is wrong; the words are made in any case."""
    if wrong:
        raise error(words)
