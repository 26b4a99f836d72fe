"""Writes SQLite exports to Nsight Systems' documented schema, with rows of our own."""

import sqlite3

# columns: "SQLite Export Schema Reference"; those that the reader does not use are left out
COLUMNS = {
    "StringIds": "id value",
    "META_DATA_EXPORT": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    "NVTX_EVENTS": "start end eventType text globalTid textId domainId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid "
    "demangledName shortName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId streamId correlationId globalPid bytes "
    "copyKind",
    "SOC_METRICS": "rawTimestamp timestamp typeId metricId value",
    "TARGET_INFO_SOC_METRICS": "typeId sourceId typeName metricId metricName",
}
TEXTS = {"name", "utcTime", "localTime", "devStateName", "text", "typeName", "metricName"}
PROCESS, THREAD = 700, 701
TID = (1 << 48) | (PROCESS << 24) | THREAD
STARTED = 1_750_000_000_000_000_000


class Writer:
    """An export that is being written; ``with`` it, its tables appear as they are used."""

    def __init__(self, path, *, board=True):
        self.db = sqlite3.connect(path)
        self.texts = {}
        self.links = 0
        self.put("META_DATA_EXPORT", "EXPORT_PRODUCT_VERSION", "2024.5.4")
        self.put(
            "TARGET_INFO_SESSION_START_TIME", STARTED, "2025-06-15T15:06:40", "2025-06-15T17:06:40"
        )
        machine = "aarch64" if board else "x86_64"
        self.put("TARGET_INFO_SYSTEM_ENV", 0, "CLI", "CpuArchitecture", 3, machine)
        self.put("ANALYSIS_DETAILS", 0, 10**9, 0, 10**9)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.db.commit()
        self.db.close()

    def put(self, table, *values):
        types = [(c, "TEXT" if c in TEXTS else "INTEGER") for c in COLUMNS[table].split()]
        key = " PRIMARY KEY" if table == "StringIds" else ""
        columns = ", ".join(f"{c} {t}{key * (i == 0)}" for i, (c, t) in enumerate(types))
        self.db.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({columns})')
        self.db.execute(f'INSERT INTO "{table}" VALUES ({",".join("?" * len(values))})', values)

    def text(self, words):
        if words not in self.texts:
            self.texts[words] = len(self.texts) + 1
            self.put("StringIds", self.texts[words], words)
        return self.texts[words]

    def range(self, name, start, end, domain=0, thread=TID):
        self.put("NVTX_EVENTS", start, end, 59, name, thread, None, domain)

    def domain(self, number, name):
        self.put("NVTX_EVENTS", 0, None, 75, name, TID, None, number)

    def kernel(self, name, call, start, end, *, owned=True):
        """A launch at ``call`` (start, end) and its kernel."""
        self.links += 1
        link = self.links
        launch = self.text("cudaLaunchKernel_v7000")
        self.put("CUPTI_ACTIVITY_KIND_RUNTIME", *call, TID, link, launch)
        number, owner = self.text(name), (1 << 48) | (PROCESS << 24) if owned else None
        self.put("CUPTI_ACTIVITY_KIND_KERNEL", start, end, 0, 7, link, owner, number, number)

    def copy(self, kind, start, end, size=4096):
        self.put("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, 0, 7, None, None, size, kind)


def engine_run(path, *, board=True):
    """A frame of an engine: two layers on the GPU, a loadable, copies, and SoC metrics."""
    with Writer(path, board=board) as out:
        out.domain(1, "TensorRT")
        out.range("frame 0", 1_000, 900_000)
        out.range("conv1", 2_000, 60_000, 1)
        out.kernel("sm80_conv_kernel", (10_000, 20_000), 30_000, 130_000)
        out.range("relu2", 70_000, 80_000, 1)
        out.kernel("relu_kernel", (71_000, 72_000), 140_000, 150_000)
        out.copy(1, 5_000, 9_000)
        out.copy(2, 800_000, 810_000)
        out.put("TARGET_INFO_SOC_METRICS", 50, 5, "SoC Metrics [Tegra234]", 3, "DLA0 Active")
        for at in range(0, 900_000, 100_000):
            out.put("SOC_METRICS", at, at, 50, 3, 57)
    return path
