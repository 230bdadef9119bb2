"""Models that were changed on purpose, with checksums that fit."""

import hashlib
import json


def sign(folder):
    """Write the checksums of a model's folder anew, over what is there now."""
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def edit_json(path, where, value, file="model.json"):
    """Change an entry of a model's folder, by the names that lead to it."""
    content = json.loads((path / file).read_text())
    inner = content
    *way, last = where.split(".")
    for name in way:
        inner = inner[name]
    inner[last] = value
    (path / file).write_text(json.dumps(content))
    sign(path)
