from __future__ import annotations

import io
import json

from rich.console import Console

from autopipe.core import scaling
from autopipe.core.scaling import INTERCONNECTS, Measured
from autopipe.reports import scaling_table

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
    found = scaling.judge(MEASURED, [1, 2, 4], virtual=virtual, notes=["4 devices are predicted: there are 2"])
    written = io.StringIO()
    Console(file=written, width=120).print(scaling_table.render(found))
    return written.getvalue()


def test_each_number_of_devices_has_a_line_that_says_whether_it_was_measured() -> None:
    text = shown()
    lines = [line.split() for line in text.splitlines()]
    assert ["2", "60", "ms", "4.17", "ms", "1,067", "1.67x", "83%", "compute", "measured"] in lines
    assert sum(line[-1:] == ["predicted"] for line in lines) == 3
    assert "95.4 MiB of gradients a step, over 12 GB/s (PCIe 3.0 x16" in text
    assert "4 devices are predicted: there are 2." in text
    assert "irtual" not in text


def test_virtual_devices_are_called_so() -> None:
    text = shown(virtual=True)
    assert "2 virtual" in text
    assert "say nothing of GPUs" in text


def test_the_document_survives_json_and_holds_both_kinds_of_scaling() -> None:
    found = scaling.judge(MEASURED, [1, 2, 3], notes=["3 devices cannot share a batch of 64"])
    document = json.loads(json.dumps(scaling_table.document(found)))
    assert [row["devices"] for row in document["strong"]] == [1, 2]  # three cannot share 64
    assert [row["devices"] for row in document["weak"]] == [1, 2, 3]
    assert document["fed_images_per_second"] == 2000.0
    assert document["strong"][1]["measured"]
