from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from autopipe.errors import ConfigError
from autopipe.extensions.scale import command, model
from autopipe.extensions.scale.model import INTERCONNECTS, Measured

MEASURED = Measured(
    batch_size=64,
    step_seconds={64: 0.1, 32: 0.052, 16: 0.03},
    gradient_bytes=100_000_000,
    interconnect=INTERCONNECTS["pcie3"],
    together={(2, 64): 0.06},
    loader_core_seconds=0.001,
    cores=2.0,
)


def shown(*, virtual: bool = False) -> str:
    found = model.judge(MEASURED, [1, 2, 4], virtual=virtual, notes=["4 devices are predicted: there are 2"])
    written = io.StringIO()
    Console(file=written, width=120).print(command.render(found))
    return written.getvalue()


def test_each_number_of_devices_has_a_line_that_says_whether_it_was_measured() -> None:
    text = shown()
    lines = [line.split() for line in text.splitlines()]
    assert ["2", "60", "ms", "4.17", "ms", "1,067", "1.67x", "83%", "compute", "measured"] in lines
    assert sum(line[-1:] == ["predicted"] for line in lines) == 3
    assert "95.4 MiB of gradients a step, over 12 GB/s (PCIe 3.0 x16" in text
    assert "4 devices are predicted: there are 2." in text
    assert "irtual" not in text
    virtual = shown(virtual=True)
    assert "2 virtual" in virtual
    assert "say nothing of GPUs" in virtual


def test_the_document_survives_json_and_holds_both_kinds_of_scaling() -> None:
    found = model.judge(MEASURED, [1, 2, 3], notes=["3 devices cannot share a batch of 64"])
    document = json.loads(json.dumps(command.document(found)))
    assert [row["devices"] for row in document["strong"]] == [1, 2]  # three cannot share 64
    assert [row["devices"] for row in document["weak"]] == [1, 2, 3]
    assert document["fed_images_per_second"] == 2000.0
    assert document["strong"][1]["measured"]


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [("12GB/s", 12e9), ("25Gbit/s", 3.125e9), ("800 MB/s", 8e8), ("1.5gb/s", 1.5e9), ("25gbe", 3.125e9)],
)
def test_an_interconnect_is_a_rate_in_bytes_or_bits_or_a_name(text: str, bytes_per_second: float) -> None:
    assert command.rate_of(text, "--interconnect").bytes_per_second == bytes_per_second


@pytest.mark.parametrize("text", ["12", "12GB", "0GB/s", "pcie5x", "-1GB/s"])
def test_what_is_no_interconnect_is_refused_with_the_names_that_are(text: str) -> None:
    with pytest.raises(ConfigError, match="`--interconnect` must be a rate such as 12GB/s"):
        command.rate_of(text, "--interconnect")


def test_counts_are_whole_numbers_from_one_on() -> None:
    assert command.counts("1, 2,8", "--devices") == [1, 2, 8]
    for text in ("0", "1,,2", "two", "-1", ""):
        with pytest.raises(ConfigError, match="`--devices` must be whole numbers"):
            command.counts(text, "--devices")
