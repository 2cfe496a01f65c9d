"""The words of the task *translate*; nothing here imports torch.

Pairs of English forms are singular and plural; those of the invented language go with living beings
and with objects.
"""

from functools import cache

DETERMINERS = ("a", "two", "three", "many")
ADJECTIVES = ("red", "blue", "green", "big", "new", "small")
NOUNS = (
    *("dog", "dogs", "cat", "cats", "bird", "birds"),
    *("car", "cars", "hat", "hats", "boat", "boats"),
)
N_LIVING = 3  # of the nouns: dog, cat, bird
VERBS = ("sees", "see", "hears", "hear", "likes", "like")
ENGLISH = (*DETERMINERS, *ADJECTIVES, *NOUNS, *VERBS, "and")

NUMBERS = ("du", "tri", "mul")  # "a" has no translation
ADJECTIVES_BY_CLASS = (
    *("ruvi", "ruvo", "sini", "sino", "veli", "velo"),
    *("gami", "gamo", "novi", "novo", "peti", "peto"),
)
TRANSLATED_NOUNS = ("kan", "mau", "fip", "gar", "cap", "nav")
VERBS_BY_CLASS = ("vidi", "vido", "audi", "audo", "ami", "amo")
TRANSLATED_AND = "e"
WORDS = (
    *(*ENGLISH, *NUMBERS, *ADJECTIVES_BY_CLASS, *TRANSLATED_NOUNS, *VERBS_BY_CLASS),
    TRANSLATED_AND,
)

# A noun phrase of each length: determiner, adjectives that differ, noun.
_N_NOUN_PHRASES = {
    2: len(DETERMINERS) * len(NOUNS) // 2,
    3: len(DETERMINERS) * len(ADJECTIVES) * len(NOUNS) // 2,
    4: len(DETERMINERS) * len(ADJECTIVES) * (len(ADJECTIVES) - 1) * len(NOUNS) // 2,
}


@cache
def compositions(length: int) -> tuple[tuple[int, ...], ...]:
    """Return the lengths of the noun phrases of every kind of source with `length` words.

    One word joins two noun phrases.
    """
    return tuple(
        (first, *rest)
        for first in _N_NOUN_PHRASES
        if first <= length
        for rest in (((),) if first == length else compositions(length - first - 1))
    )


@cache
def count_sources(length: int, is_sentence: bool = False) -> int:
    """Return the number of sources of `length` words, or of what may follow a verb."""
    n_joints = 1 if is_sentence else len(VERBS) // 2
    return _N_NOUN_PHRASES.get(length, 0) + sum(
        n * n_joints * count_sources(length - first - 1, True)
        for first, n in _N_NOUN_PHRASES.items()
        if length > first
    )
