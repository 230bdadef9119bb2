"""Models that were changed on purpose, with checksums that fit."""

import hashlib


def sign(folder):
    """Write the checksums of a model's folder anew, over what is there now."""
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines))
