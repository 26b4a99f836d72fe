"""The tables of a fleet's state, as the steps from each version to the next."""

from __future__ import annotations

__all__ = ["MIGRATIONS", "VERSION"]

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE rollouts (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            app TEXT NOT NULL,
            config TEXT NOT NULL,
            config_digest TEXT NOT NULL,
            bundle TEXT,             -- a bundle file that was given instead of a build
            inventory TEXT NOT NULL,
            inventory_digest TEXT NOT NULL,
            selector TEXT,
            settings TEXT NOT NULL,
            terms TEXT NOT NULL,     -- by configuration: keep, policy and source of deployments
            trust INTEGER NOT NULL,  -- whether boards are to trust the signing key from now on
            state TEXT NOT NULL,     -- running paused rolling-back done failed aborted rolled-back
            wish TEXT NOT NULL DEFAULT '',
            wave INTEGER NOT NULL DEFAULT 0,
            scope INTEGER,           -- the wave that is rolled back; NULL means all
            error TEXT,
            driver TEXT,             -- host and process of the last driver, for people
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL
        )""",
        """CREATE TABLE boards (
            rollout INTEGER NOT NULL REFERENCES rollouts(id),
            number INTEGER NOT NULL,
            name TEXT NOT NULL,
            wave INTEGER NOT NULL,
            state TEXT NOT NULL,
            entry TEXT NOT NULL,
            labels TEXT NOT NULL,
            before TEXT,             -- digest that served before; '' for none, NULL not yet known
            digest TEXT,             -- digest of the bundle that it gets
            release TEXT,
            attempts INTEGER NOT NULL DEFAULT 0,
            bytes_sent INTEGER NOT NULL DEFAULT 0,
            seconds REAL NOT NULL DEFAULT 0,
            error TEXT,
            updated_at REAL NOT NULL DEFAULT 0,
            PRIMARY KEY (rollout, name)
        ) WITHOUT ROWID""",
        """CREATE TABLE bundles (
            rollout INTEGER NOT NULL REFERENCES rollouts(id),
            key TEXT NOT NULL,
            digest TEXT NOT NULL,
            PRIMARY KEY (rollout, key)
        ) WITHOUT ROWID""",
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY,
            rollout INTEGER NOT NULL REFERENCES rollouts(id),
            at REAL NOT NULL,
            board TEXT NOT NULL,
            state TEXT NOT NULL,
            error TEXT
        )""",
        "CREATE INDEX boards_by_wave ON boards (rollout, wave, number)",
        "CREATE INDEX events_by_rollout ON events (rollout, id)",
    ),
)

VERSION = len(MIGRATIONS)
