import ast
import subprocess
import sys
from pathlib import Path

import pytest

import devlint.runtime

CHECK = """
import sys
import torch
from devlint.runtime import (
    DeviceLoader, PreloadedDataset, best_device, check_devices, default_device, device_check, devices_of,
    explain_device_errors, guard_devices, make_loader, module_device, to_device,
)
to_device({"x": torch.zeros(1)}, "meta")
names = ("libcst", "flake8", "numpy", "attrs", "matplotlib")
print([name for name in names if name in sys.modules])
"""


def test_neither_libcst_nor_other_packages_are_imported() -> None:
    blocked = "import sys; sys.modules['numpy'] = None\n" + CHECK
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", blocked], capture_output=True, text=True, check=True)
    assert done.stdout == "['numpy']\n"


def test_importing_the_package_imports_nothing_but_itself() -> None:
    program = "import sys; before = set(sys.modules); import devlint.runtime; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    brought = ast.literal_eval(done.stdout)
    assert [name for name in brought if name.startswith(("torch", "libcst"))] == []
    assert len(brought) < 60


def test_every_name_is_exported_once() -> None:
    assert devlint.runtime.__all__ == sorted(devlint.runtime._HOME)
    source = Path(devlint.runtime.__file__).read_text()
    block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == {name: f"devlint.runtime.{home}" for name, home in devlint.runtime._HOME.items()}
    assert set(devlint.runtime.__all__) <= set(dir(devlint.runtime))


def test_rehearse_is_the_context_manager_and_not_a_module() -> None:
    import devlint.runtime._rehearse

    assert callable(devlint.runtime.rehearse)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'move_to'"):
        _ = devlint.runtime.move_to  # type: ignore[attr-defined]
