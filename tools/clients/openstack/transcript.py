"""What a client saw, in words that are the same on every cloud."""

import re

VEILS = [
    (r"req-[0-9a-f-]{36}", "<request>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"https?://[^\s/\"']+(/(identity|compute|network|image|volume))?", "<url>"),
    (r"\b[0-9a-f]{32}\b", "<id>"),
    (r"([0-9a-f]{2}:){5,15}[0-9a-f]{2}", "<mac>"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?", "<time>"),
    (r"\b\d+\.\d+\.\d+\.\d+\b", "<ip>"),
]


def veiled(text):
    """The text without what differs from run to run."""
    for pattern, name in VEILS:
        text = re.sub(pattern, name, text)
    return text


def tell(step, saw=""):
    """Prints one line of the transcript."""
    print(veiled(f"{step}: {saw}" if saw != "" else step), flush=True)
