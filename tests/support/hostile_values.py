"""Values of JSON that a hostile client sends in place of others, as a strategy of hypothesis."""

import json

from hypothesis import strategies as st

NESTED = [
    json.loads(opened * depth + inner + closed * depth)
    for depth in (1, 40, 400)
    for opened, inner, closed in (("[", "", "]"), ('{"a":', "1", "}"))
]
HOSTILE_VALUES = st.one_of(
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=30),
    st.sampled_from(
        [
            *(None, True, False, 10**400, -1, 0, 1, 2**31, 2**63, 1e300, "", "\x00", "\ud800"),
            *("../../etc/passwd", "<script>", "x" * 3000),
            *([], {}, [1, "a"], {"a": 1}, [[None]], ["../x"], {"": []}, *NESTED),
        ]
    ),
)
