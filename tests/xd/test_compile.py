import numpy as np

from deconflow.xd.kernel import compile as kernel_compile


def test_compiles_where_no_cache_can_be_written(monkeypatch):
    real = kernel_compile.njit

    def refusing(*signature, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(*signature, **options)

    monkeypatch.setattr(kernel_compile, "njit", refusing)

    @kernel_compile.compiled_rows()
    def total(x):
        answer = 0.0
        for value in x:
            answer += value
        return answer

    assert total(np.arange(5.0)) == 10.0
