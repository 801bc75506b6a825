"""The operator table, read from the installed torch."""

import pytest

pytest.importorskip("torch")

from devlint.runtime._rehearse import op_table


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("add.Tensor", op_table.ITERATOR),
        ("addmm", op_table.EXACT),
        ("cat", op_table.EXACT),
        ("nll_loss_forward", op_table.EXACT),
        ("lerp_.Tensor", op_table.ITERATOR),
        ("index_select", op_table.EXACT),
        ("linear", op_table.IMPLICIT),
        ("embedding", op_table.EXPLICIT),
        ("mkldnn_convolution", op_table.EXPLICIT),
        ("histogram.bins_tensor", op_table.NO_KERNEL),
    ],
)
def test_kind_of_operator(operator: str, kind: str) -> None:
    assert op_table.table()[operator].kind == kind


def test_parse_takes_a_delegates_kernel_and_generated_names() -> None:
    table = op_table.parse(
        "- func: f.out(Tensor self) -> Tensor\n  structured: True\n  device_check: NoCheck   # TensorIterator\n"
        "  dispatch:\n    CPU, CUDA: f_out\n\n"
        "- func: f(Tensor self) -> Tensor\n  structured_delegate: f.out\n\n"
        "- func: g(Tensor self) -> Tensor\n  dispatch:\n    CompositeExplicitAutograd: g\n  autogen: g.out\n"
    )
    assert table["f.out"] == op_table.OpRule(op_table.ITERATOR, True)
    assert table["f"] == op_table.OpRule(op_table.EXACT, True)
    assert table["g"] == table["g.out"] == op_table.OpRule(op_table.EXPLICIT, False)
