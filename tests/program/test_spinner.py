import io
import time

from deconflow.program.spinner import waiting


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_sign_of_life_on_a_terminal_only(monkeypatch):
    for stream, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with waiting("fitting xd", shown=True):
            time.sleep(0.7)
        assert ("fitting xd" in stream.getvalue()) == seen
