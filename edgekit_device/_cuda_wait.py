"""How the process waits for the device: spinning, blocked, or as CUDA thinks best.

cuDevicePrimaryCtxSetFlags: spinning takes a core and notices the end sooner (trtexec's
--useSpinWait, its default from TensorRT 11 on); blocked is how trtexec waits otherwise. By itself
CUDA takes CU_CTX_SCHED_AUTO, which spins where there are cores enough and, on Tegra, may block.
"""

from __future__ import annotations

from typing import Optional

from ._cuda import Cuda
from ._cuda_ways import Way, open_way

__all__ = ["choose_wait", "wait_of"]

# CUctx_flags: CU_CTX_SCHED_*
_FLAGS = {"auto": 0, "spin": 1, "yield": 2, "blocking": 4}
_SCHEDULE = 7  # CU_CTX_SCHED_MASK


def choose_wait(spin: bool, device: int = 0, way: Optional[Way] = None) -> None:
    """Has the process wait spinning or blocked; to be called before anything opens the device.

    Raises:
        DeviceError: "cuda.failed" where the device is open already and its driver minds, or as
            ``open_cuda``.
    """
    way = way or open_way()
    way.call("cuInit", 0)
    number = way.call("cuDeviceGet", device)
    way.call("cuDevicePrimaryCtxSetFlags", number, _FLAGS["spin" if spin else "blocking"])


def wait_of(cuda: Cuda) -> str:
    """How threads wait in the device's context: "auto", "spin", "yield" or "blocking"."""
    flag = int(cuda.call("cuCtxGetFlags")) & _SCHEDULE
    return {number: name for name, number in _FLAGS.items()}.get(flag, "auto")
