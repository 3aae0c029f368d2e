"""The folder of a checkpoint: what it gives back, and what it refuses."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")

from loopax.pymc.checkpoints.folder import CheckpointError, checkpoint

pytestmark = pytest.mark.both_stacks
PARTS = {"draws": "100", "data 'y'": "sha256 1", "model": "sha256 2"}
BLOCKS = [{"0": np.arange(6.0).reshape(2, 3), "b/c": np.array(True)}, {"0": np.ones((2, 1))}]


def write(place, parts=PARTS, record="chains"):
    with checkpoint(place, parts) as folder:
        for k, block in enumerate(BLOCKS):
            folder.record(record).append(block, {"x": np.array(k)})


def read(place, parts=PARTS):
    with checkpoint(place, parts) as folder:
        record = folder.record("chains")
        return record.state, list(record.blocks())


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "run"
    write(place)
    return place


def test_blocks_and_the_state_after_them(place):
    state, blocks = read(place)
    np.testing.assert_equal(state, {"x": np.array(1)})
    np.testing.assert_equal(blocks, BLOCKS)
    with np.load(place / "chains.000000.npz", allow_pickle=False) as arrays:  # as anybody can
        np.testing.assert_array_equal(arrays["0"], BLOCKS[0]["0"])


@pytest.mark.parametrize("when", ["before the state", "before the block", "halfway"])
def test_a_process_that_was_killed_while_it_wrote(place, when):
    """The state says which blocks count; what comes after it is written again."""
    (place / "chains.000002.npz-1234.partial").write_bytes(b"half of a blo")
    if when != "halfway":
        (place / "chains.000002.npz").write_bytes(b"not counted")
    if when == "before the state":
        (place / "chains.state.npz-1234.partial").write_bytes(b"")
    assert len(read(place)[1]) == 2
    assert not [name for name in os.listdir(place) if name.endswith(".partial")]
    with checkpoint(place, PARTS) as folder:
        folder.record("chains").append({"0": np.zeros(1)}, {"x": np.array(2)})
    state, blocks = read(place)
    assert state["x"] == 2 and blocks[2]["0"] == 0


def test_another_run_is_refused_by_what_differs(place):
    other = {"tune": "5", "draws": "200", "data 'y'": "sha256 3", "model": "sha256 4"}
    with pytest.raises(CheckpointError) as refusal:
        read(place, other)
    message = str(refusal.value)
    assert "draws: 100, now 200" in message and "data 'y': other content" in message
    assert "tune: not there, now 5" in message
    assert "model" not in message.partition("Call sample")[0]  # its data say it
    assert "checkpoint='" in message
    with pytest.raises(CheckpointError, match="model: other content"):
        read(place, {**PARTS, "model": "sha256 5"})
    assert len(read(place)[1]) == 2


def test_a_run_that_drew_nothing_gives_way(tmp_path):
    """A run that failed is repaired, and begins in the same folder."""
    with pytest.raises(ZeroDivisionError), checkpoint(tmp_path / "run", {"draws": "1"}):
        raise ZeroDivisionError
    write(tmp_path / "run")
    assert len(read(tmp_path / "run")[1]) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["chains.000001.npz", "chains.state.npz"])
@pytest.mark.parametrize("harm", ["a bit", "the end", "all", "link", "pipe", "others"])
def test_a_damaged_file_is_refused(place, name, harm):
    file = place / name
    data = bytearray(file.read_bytes())
    if harm == "a bit":
        for k in range(len(data)):  # whichever it is, the file is refused or says the same
            changed = data.copy()
            changed[k] ^= 4
            file.write_bytes(changed)
            try:
                state, blocks = read(place)
            except CheckpointError:
                continue
            np.testing.assert_equal((state, blocks), ({"x": np.array(1)}, BLOCKS))
        return
    if harm == "others":
        file.chmod(0o666)
    else:
        file.unlink()
    if harm == "link":
        (place / "else").write_bytes(data)
        file.symlink_to(place / "else")
    elif harm == "pipe":
        os.mkfifo(file, 0o600)
    elif harm in ("the end", "all"):
        file.write_bytes(data[:-1] if harm == "the end" else b"")
    with pytest.raises(CheckpointError, match=f"{name}.* cannot be read"):
        read(place)


def test_files_are_not_exchanged(place, tmp_path):
    """A file is refused in the place of another, of this run or of another one."""
    first = place / "chains.000000.npz"
    (place / "chains.000001.npz").write_bytes(first.read_bytes())
    with pytest.raises(CheckpointError, match=r"000001.npz.* its digest"):
        read(place)
    write(tmp_path / "other")
    first.write_bytes((tmp_path / "other" / "chains.000000.npz").read_bytes())
    with pytest.raises(CheckpointError, match=r"000000.npz.* its digest"):
        read(place)
    first.unlink()
    with pytest.raises(CheckpointError, match=r"000000.npz.* it is missing"):
        read(place)


def test_pickles_are_not_read(place):
    np.savez(place / "chains.000000.npz", **{"0": np.array([print], dtype=object)})
    with pytest.raises(CheckpointError, match="allow_pickle=False"):
        read(place)
    np.savez_compressed(place / "chains.000000.npz", **{"0": np.zeros(10**6)})
    with pytest.raises(CheckpointError, match="compressed"):
        read(place)


def test_what_is_no_checkpoint(tmp_path, place):
    (tmp_path / "photos").mkdir(mode=0o700)
    (tmp_path / "photos" / "cat.png").touch()
    with pytest.raises(
        CheckpointError, match=r"not a checkpoint: it has no run.json, but 'cat.png'"
    ):
        write(tmp_path / "photos")
    assert os.listdir(tmp_path / "photos") == ["cat.png"]
    with pytest.raises(CheckpointError, match="not a folder that loopax can write to"):
        write(tmp_path / "photos" / "cat.png")
    with pytest.raises(CheckpointError, match="not a folder that loopax can write to"):
        write(tmp_path / "photos" / "cat.png" / "below")
    place.chmod(0o777)
    with pytest.raises(CheckpointError, match="others may write to it.*chmod go-w"):
        read(place)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "cannot be read"),
        (b"[]", "cannot be read"),
        (json.dumps({"format": 1, "parts": {}, "entropy": "x"}).encode(), "cannot be read"),
        (json.dumps({"format": 9, "parts": {}, "entropy": "1"}).encode(), "has format 9"),
    ],
)
def test_a_damaged_run(place, content, said):
    (place / "run.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read(place)


def test_one_process_at_a_time(place):
    with (
        checkpoint(place, PARTS),
        pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"),
    ):
        read(place)
    assert len(read(place)[1]) == 2
