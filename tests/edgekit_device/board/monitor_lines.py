"""Lines of tegrastats as releases print them, and a copy of a board's /sys and /proc: ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["LINES", "fake_board", "fake_tegrastats"]

_CPU = "[3%@1190,off,17%@1190,0%@2265]"

#: by JetPack and account; the numbers are ours
LINES = {
    "4 root": f"RAM 3010/15692MB (lfb 210x4MB) SWAP 12/7846MB (cached 1MB) CPU {_CPU} "
    "EMC_FREQ 5%@2133 GR3D_FREQ 41%@905 APE 150 MTS fg 1% bg 4% AO@33C GPU@35.5C PMIC@50C "
    "thermal@34.15C GPU 2163/1880 CPU 927/930 SOC 2318/2310 CV 1545/1200 VDDRQ 463/400 "
    "SYS5V 2934/2930",
    "4 user": f"RAM 3010/15692MB (lfb 210x4MB) SWAP 12/7846MB (cached 1MB) CPU {_CPU} "
    "EMC_FREQ 0% GR3D_FREQ 7% AO@33C GPU@35.5C",
    "5 root, DLA at work": f"03-14-2025 08:09:10 RAM 9010/62780MB (lfb 424x4MB) "
    f"SWAP 0/31390MB (cached 0MB) CPU {_CPU} EMC_FREQ 9%@3199 GR3D_FREQ 12%@[611,611] "
    "GR3D2_FREQ 1%@611 VIC_FREQ 115 NVDLA0_FREQ @1369 APE 174 CV0@61.5C CV1@-256C tj@63C "
    "VDD_GPU_SOC 3150mW/2971mW NC 0mW/0mW VDD_CPU_CV 8312mW/7415mW VIN_SYS_5V0 4968mW/5048mW "
    "VDDQ_VDD2_1V8AO 1091mW/1091mW",
    "6 root": f"08-20-2026 22:56:40 RAM 4078/62841MB (lfb 87x4MB) SWAP 0/31421MB (cached 0MB) "
    f"CPU {_CPU} EMC_FREQ 9%@3199 GR3D_FREQ 0%@[0,0] NVENC 79%@166 NVDEC off NVJPG1 off VIC off "
    "NVDLA0 0%@1600 NVDLA1 off PVA0_FREQ off APE 174 cpu@52.5C tj@52.5C "
    "VDD_GPU_SOC 2400mW/2410mW VDD_CPU_CV 3600mW/3500mW VIN_SYS_5V0 4700mW/4700mW",
    "7.2 root": f"07-31-2026 14:58:05 RAM 4714/62878MB (lfb 1x512kB) CPU {_CPU} "
    "EMC_FREQ 2%@2133 GR3D_FREQ 12%@[1300,1300] NVENC0 off NVDEC0 off NVJPG0 off NVDLA0 off "
    "cpu@50.718C/51C tj@50C/51C VDD_GPU_SOC 2265mW/2264mW/2300mW VDD_CPU_CV 2643mW/2643mW/2650mW",
    "Thor": "08-08-2026 20:58:23 RAM 3429/125749MB (lfb 120x4MB) CPU [0%,5%,off]@2601 "
    "EMC_FREQ @4266 GR3D_FREQ @[1574,off,1574] NVENC0_FREQ @1691 VIC off gpu@51.218C/51.218C "
    "VDD_GPU -392mW/20mW/6330mW VIN 28906mW/14453mW/28906mW",
}

_FILES = {
    "proc/stat": "cpu  4 0 4 92\ncpu0 400 0 100 9500 0 0 0 0 0 0\ncpu2 10 0 0 90 0 0 0 0 0 0\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\n"
    "SwapTotal: 50 kB\nSwapFree: 40 kB\n",
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2201600\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "51250\n",
    "sys/class/thermal/thermal_zone1/type": "GPU-therm\n",
    "sys/class/thermal/thermal_zone1/temp": "-256000\n",
    "sys/class/thermal/cooling_device0/type": "gpu-throttle-alert\n",
    "sys/class/thermal/cooling_device0/cur_state": "1\n",
    "sys/class/thermal/cooling_device1/type": "pwm-fan\n",
    "sys/class/thermal/cooling_device1/cur_state": "3\n",
    "sys/class/hwmon/hwmon7/oc1_event_cnt": "2\n",
    "sys/class/devfreq/17000000.gpu/cur_freq": "612000000\n",
    "sys/class/devfreq/17000000.gpu/device/load": "415\n",
    "sys/class/devfreq/15340000.vic/cur_freq": "115200000\n",
    "sys/kernel/debug/clk/dla0_core/clk_rate": "1369600000\n",
}
_PLATFORM = {
    5: "sys/devices/platform/13e40000.host1x",
    6: "sys/devices/platform/bus@0/13e00000.host1x",
    7: "sys/devices/platform/bus@0/13e00000.host1x",
}
_L4T = {5: "R35", 6: "R36", 7: "R39"}


def fake_board(folder: Path, jetpack: int = 6) -> Path:
    """Makes the files of a board with that JetPack; returns the root of its file system."""
    files = dict(_FILES)
    for core, address, state in ((0, "15880000", "active"), (1, "158c0000", "suspended")):
        place = f"{_PLATFORM[jetpack]}/{address}.nvdla{core}"
        files[f"{place}/power/runtime_status"] = state + "\n"
        if jetpack >= 6:
            files[f"{place}/clk_cap/dla{core}_core"] = "908800000\n"
    release = (
        f"# {_L4T[jetpack]} (release), REVISION: 4.3, GCID: 1, BOARD: generic, EABI: aarch64\n"
    )
    files["etc/nv_tegra_release"] = release
    chip = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3"
    files[f"{chip}/name"] = "ina3221\n"
    for channel, (name, mv, ma) in enumerate((("VDD_GPU_SOC", 843, 6000), ("NC", 0, 0)), 1):
        files[f"{chip}/in{channel}_label"] = name + "\n"
        files[f"{chip}/in{channel}_input"] = f"{mv}\n"
        files[f"{chip}/curr{channel}_input"] = f"{ma}\n"
    files[f"{chip}/in7_label"] = "sum of shunt voltages\n"
    files[f"{chip}/in7_input"] = "5\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "ascii")
    return folder


def fake_tegrastats(folder: Path, body: str) -> Path:
    """A program "tegrastats" in a new folder, which runs this Python; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "tegrastats"
    program.write_text(f"#!{sys.executable} -IS\n{body}", "utf-8")
    os.chmod(program, 0o755)
    return folder
