"""The picture of a run on a terminal, in a pipe, and as a plot."""

from pathlib import Path

import pytest
from rich.console import Console

from folkmoot.observe.picture import Picture
from folkmoot.observe.plot import plot_loss
from folkmoot.observe.terminal import TerminalView, sparkline, watching


def test_in_a_pipe_each_thing_that_happened_is_a_line(
    picture: Picture, capsys: pytest.CaptureFixture[str]
) -> None:
    with watching(picture, 2) as view:
        view.refresh()
        view.refresh()
    lines = capsys.readouterr().out.splitlines()
    assert sum("epoch 0 starts with 2 clients" in line for line in lines) == 1
    assert lines[-1].endswith("Finished, epoch 0, step 1/2, loss 2.500, 0 tokens/s")


def test_on_a_terminal_clients_are_a_table(picture: Picture) -> None:
    class Screen:
        def update(self, panel: object) -> None:
            self.panel = panel

    screen, console = Screen(), Console(width=120, record=True, file=None, quiet=False)
    TerminalView(picture, 2, screen).refresh()
    with console.capture() as capture:
        console.print(screen.panel)
    text = capture.get()
    (row,) = [line for line in text.splitlines() if "client-1 " in line and "ended" in line]
    assert row.split()[1:9] == ["client-1", "ended", "2", "3.000", "1,200", "900", "B", "800"]
    assert "rewound from step 2 to 1" in text
    assert "loss █▁" in text


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([1.0], "▁"), ([1.0, 2.0], "▁█"), ([3.0, 2.0, 1.0], "█▅▁")]
)
def test_a_curve_fits_in_a_line(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def test_a_long_curve_is_squeezed() -> None:
    assert len(sparkline([float(i) for i in range(1000)], width=48)) == 48


def test_the_loss_is_plotted(picture: Picture, tmp_path: Path) -> None:
    picture.update()
    file = tmp_path / "plots" / "loss.png"
    plot_loss(picture, file, "small")
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_a_loss_is_plotted_too(tmp_path: Path) -> None:
    plot_loss(Picture(tmp_path), tmp_path / "loss.png", "nothing")
    assert (tmp_path / "loss.png").stat().st_size > 1000
