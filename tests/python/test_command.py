# SPDX-License-Identifier: Apache-2.0
"""The command that the package ships, and what calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import support

import octile
from octile import _command


def test_version_and_devices_are_those_of_the_command():
    printed = subprocess.run([_command.path(), "--version"], capture_output=True, text=True, check=True).stdout
    assert octile.__version__ in printed
    listed = json.loads(_command.run("devices", "--json"))
    assert [device["id"] for device in listed] == [device["id"] for device in octile.devices()]
    assert octile.devices()[0]["kind"] == "cpu"


def test_the_console_script_is_the_command():
    script = Path(sys.executable).parent / "octile"
    if not script.exists():
        pytest.skip("octile is on the path of modules, but not installed in this environment")
    done = subprocess.run([script, "explain", "--n", "0", "--k", "1", "--m", "1"], capture_output=True, text=True)
    assert done.returncode == 2 and "--n" in done.stderr
    done = subprocess.run([script, "devices"], capture_output=True, text=True)
    assert done.returncode == 0 and "reference" in done.stdout


def test_the_package_ships_its_tables():
    said = octile.explain(4096, 4096, 3, device_name="NVIDIA_L40S")
    package = Path(octile.__file__).parent.resolve()
    assert Path(said["table_file"]).is_relative_to(package), said["table_file"]
    assert said["choice"] == "tile"


def test_the_vendor_is_found_beside_the_library():
    vendors = {vendor["name"]: vendor for vendor in octile.devices()[0]["vendors"]}
    component = Path(octile.__file__).parent / "lib" / "octile" / "liboctile_onednn.so"
    assert vendors["onednn"]["available"] == component.exists(), vendors["onednn"]


def test_tune_writes_tables_that_linears_then_use(tmp_path, rng, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    summary = octile.tune(n=1024, k=1088, m=[1, 4], tables=tmp_path / "tables")
    assert "wrote" in summary
    said = octile.explain(1024, 1088, 4, tables=tmp_path / "tables")
    assert Path(said["table_file"]).parent == tmp_path / "tables" and said["table_key"]
    codes, scales = support.random_weight(rng, 1024, 1088)
    weight = octile.Weight(codes, scales, tables=str(tmp_path / "tables"))
    linear = octile.Linear(weight, x_dtype="fp16", max_m=4)
    assert linear.explain(4)["table_file"] == said["table_file"]
    assert linear.explain(4)["kernel"] == said["kernel"]
    x = rng.standard_normal((4, 1088)).astype(np.float16)
    reference = support.product(*support.quantize(x.astype(np.float32)), codes, scales)
    support.assert_close(support.from_bf16(linear(x)), reference, "bf16", 1088)


def test_wrong_arguments_are_a_value_error_with_the_commands_words(tmp_path):
    with pytest.raises(ValueError, match="--model"):
        octile.tune("no-such-model", tables=tmp_path)
    with pytest.raises(ValueError, match="--m"):
        octile.tune(n=8, k=8, m=[0], tables=tmp_path)
    with pytest.raises(ValueError):
        octile.explain(-1, 8, 1)


def test_a_failing_command_is_a_runtime_error_with_its_words(tmp_path):
    if os.geteuid() == 0:
        target = tmp_path / "file"
        target.write_text("")
    else:
        target = tmp_path
        tmp_path.chmod(0o500)
    with pytest.raises(octile.CommandFailed, match="exit status 1") as raised:
        octile.tune(n=64, k=64, m=[1], time_budget="5s", tables=target / "below")
    assert raised.value.status == 1 and str(target) in str(raised.value)
