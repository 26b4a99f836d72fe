"""The tables of the history, as the steps from each version to the next."""

from __future__ import annotations

__all__ = ["MIGRATIONS", "VERSION"]

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE results (
            id INTEGER PRIMARY KEY AUTOINCREMENT,  -- an id that was pruned never comes back
            digest TEXT NOT NULL UNIQUE,  -- of what was measured: the same run is kept once
            at REAL NOT NULL,             -- Unix seconds when it was recorded
            name TEXT NOT NULL,           -- the configuration's
            clock TEXT NOT NULL,          -- cpu-measured or board-measured
            verdict TEXT,                 -- VALID or INVALID
            board TEXT NOT NULL,          -- kind:name
            host TEXT NOT NULL,           -- whose processor it was, where that is not the board's
            target TEXT,
            power_mode TEXT,              -- as measured, otherwise as planned
            precision TEXT,
            backend TEXT,
            bundle TEXT,                  -- its digest
            release TEXT,
            fingerprint TEXT NOT NULL,    -- JSON: module, L4T, TensorRT, versions
            git_commit TEXT,              -- of the configuration's folder
            git_dirty INTEGER,            -- tracked files differed from it
            settings TEXT NOT NULL,       -- JSON: how it was measured
            runtime TEXT NOT NULL,        -- JSON: the runtime's effective flags
            iterations INTEGER NOT NULL,
            median_ms REAL,
            p99_ms REAL,
            throughput_qps REAL,
            energy_uj REAL,               -- of one inference
            document BLOB NOT NULL,       -- edgekit.bench/1 without its samples: deflated JSON
            samples BLOB NOT NULL         -- ms: float64, bytes by place, deflated
        )""",
        """CREATE TABLE marks (
            name TEXT PRIMARY KEY,
            result INTEGER NOT NULL REFERENCES results(id) ON DELETE CASCADE,
            at REAL NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX results_by_name ON results (name, board, id)",
        "CREATE INDEX results_by_commit ON results (git_commit, id)",
    ),
)

VERSION = len(MIGRATIONS)
