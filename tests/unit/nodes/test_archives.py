"""An archive of one program is one that containerd can check."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from quorate_nodes.archives import program_archive


def test_the_archive_names_the_digest_of_its_layer_and_its_program(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"a program")
    archive = tmp_path / "pause.tar"

    program_archive(program, "localhost/pause:1", archive)

    parts = {}
    with tarfile.open(archive) as opened:
        for entry in opened:
            content = opened.extractfile(entry)
            assert content is not None
            parts[entry.name] = content.read()
    (manifest,) = json.loads(parts["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/pause:1"]
    layer = parts[manifest["Layers"][0]]
    config = json.loads(parts[manifest["Config"]])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/pause"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
        assert opened.getmember("pause").mode == 0o755
