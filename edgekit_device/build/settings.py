"""Sets the builder's flags, properties, masks and pools from a table, and reads each back."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.errors import listed
from edgekit_device.protocol.codec import (
    choice,
    document,
    fail,
    integer,
    member,
    names,
    nullable,
    text,
)

_NAME = text(r"[A-Za-z_][A-Za-z0-9_]{0,63}", "a name of TensorRT's API")
_OPTIONAL_NAME = text(r"([A-Za-z_][A-Za-z0-9_]{0,63})?", "a name of TensorRT's API")
_MOST = 1 << 44
#: Kinds of settings: a BuilderFlag; a number of IBuilderConfig; a member of an enum; several
#: members as a mask; a single member that is on or off; the limit of a memory pool.
KINDS = ("flag", "number", "choice", "sources", "switches", "pool")
_NUMBERED = ("flag", "number", "switches", "pool")


@document(frozen=True)
class Setting:
    """A setting of the builder, by TensorRT's names.

    Attributes:
        key: The configuration's key, for messages and facts.
        kind: One of ``KINDS``.
        name: The flag, the property or method of IBuilderConfig, or the pool.
        enum: The enum of ``members``; "" without members.
        members: A single member for a choice and a switch; any number for sources.
        number: The number, bytes for a pool; 0 or 1 for a flag and a switch.
    """

    key: str = member(text())
    kind: str = member(choice(*KINDS))
    name: str = member(_NAME)
    enum: str = member(_OPTIONAL_NAME, absent="")
    members: Tuple[str, ...] = member(names(rule=_NAME), absent=())
    number: Optional[int] = member(nullable(integer(0, _MOST)), absent=None)

    def check(self) -> None:
        """Refuses a setting that lacks a field that its kind needs."""
        if (self.number is not None) != (self.kind in _NUMBERED):
            fail(
                "number",
                "a setting of kind {} has {} number".format(
                    self.kind, "a" if self.kind in _NUMBERED else "no"
                ),
            )
        of_enum = self.kind in ("choice", "sources", "switches")
        if bool(self.enum) != of_enum:
            fail(
                "enum",
                "a setting of kind {} has {} enum".format(self.kind, "an" if of_enum else "no"),
            )
        if self.kind in ("choice", "switches") and len(self.members) != 1:
            fail("members", "a setting of kind {} has one member".format(self.kind))


def apply_settings(
    trt: Any, config: Any, settings: Sequence[Setting], key: str, notes: List[str]
) -> Dict[str, str]:
    """Applies all settings in order, and reads each back.

    A setting that the release lacks is left out with a note; so is a setting with another value
    afterwards: TensorRT reports refusals only in its log.

    Args:
        trt: TensorRT's module.
        config: The builder's configuration.
        settings: The settings.
        key: The engine's key, for notes.
        notes: Gets a sentence for each setting that was not applied.

    Returns:
        TensorRT's values, by the configuration's key: "2", "FAST", "on"; several members of a key
        in a single text.
    """
    held: Dict[str, List[str]] = {}
    for setting in settings:
        lacking = _find_missing(trt, config, setting)
        if lacking:
            notes.append(
                "{}: this TensorRT has no {}, so {} is not set".format(key, lacking, setting.key)
            )
            continue
        wanted, found = _APPLY[setting.kind](trt, config, setting)
        if wanted != found:
            notes.append(
                "{}: TensorRT does not take {} for {}: it is {}".format(
                    key, wanted, setting.key, found
                )
            )
        held.setdefault(setting.key, []).append(found)
    return {name: listed(texts, most=len(texts)) for name, texts in held.items()}


def read_flags(trt: Any, config: Any, settings: Sequence[Setting]) -> List[str]:
    """Returns the names of the flags among settings that TensorRT has set."""
    found = (setting.name for setting in settings if setting.kind == "flag")
    available = [name for name in found if hasattr(trt.BuilderFlag, name)]
    return [name for name in available if config.get_flag(getattr(trt.BuilderFlag, name))]


def _find_missing(trt: Any, config: Any, setting: Setting) -> str:
    """Returns the name that the release lacks; "" if it has all names."""
    owner = {"flag": "BuilderFlag", "pool": "MemoryPoolType"}.get(setting.kind, "")
    holder = getattr(trt, owner) if owner else config
    if not hasattr(holder, setting.name):
        return ".".join(filter(None, (owner or "IBuilderConfig", setting.name)))
    # the enum before its members: without it they cannot be looked up
    if setting.enum and not hasattr(trt, setting.enum):
        return setting.enum
    enum = getattr(trt, setting.enum) if setting.enum else None
    lacking = [name for name in setting.members if not hasattr(enum, name)]
    return "{}.{}".format(setting.enum, lacking[0]) if lacking else ""


# each function applies a setting and returns the wanted and TensorRT's resulting value as texts


def _flag(trt: Any, config: Any, setting: Setting) -> Tuple[str, str]:
    member = getattr(trt.BuilderFlag, setting.name)
    (config.set_flag if setting.number else config.clear_flag)(member)
    return _on_off(bool(setting.number)), _on_off(config.get_flag(member))


def _number(trt: Any, config: Any, setting: Setting) -> Tuple[str, str]:
    setattr(config, setting.name, setting.number)
    return str(setting.number), str(getattr(config, setting.name))


def _choice(trt: Any, config: Any, setting: Setting) -> Tuple[str, str]:
    setattr(config, setting.name, getattr(getattr(trt, setting.enum), setting.members[0]))
    return setting.members[0], str(getattr(config, setting.name).name)


def _sources(trt: Any, config: Any, setting: Setting) -> Tuple[str, str]:
    enum = getattr(trt, setting.enum)
    bits = {name: 1 << int(getattr(enum, name)) for name in enum.__members__}
    # a set: a member that is listed twice must not count twice in the sum
    mask = sum(bits[name] for name in set(setting.members))
    getattr(config, setting.name)(mask)
    # IBuilderConfig names its getters after the setters
    held = getattr(config, setting.name.replace("set_", "get_", 1))()
    return _mask_names(bits, mask), _mask_names(bits, held)


def _mask_names(bits: Mapping[str, int], mask: int) -> str:
    return listed((name for name, bit in bits.items() if bit & mask), most=99) or "none"


def _member_switch(trt: Any, config: Any, setting: Setting) -> Tuple[str, str]:
    name = setting.members[0]
    member = getattr(getattr(trt, setting.enum), name)
    getattr(config, setting.name)(member, bool(setting.number))
    held = getattr(config, setting.name.replace("set_", "get_", 1))(member)
    return "{} {}".format(name, _on_off(bool(setting.number))), "{} {}".format(name, _on_off(held))


def _pool(trt: Any, config: Any, setting: Setting) -> Tuple[str, str]:
    pool = getattr(trt.MemoryPoolType, setting.name)
    config.set_memory_pool_limit(pool, setting.number)
    return str(setting.number), str(config.get_memory_pool_limit(pool))


def _on_off(on: bool) -> str:
    return "on" if on else "off"


_APPLY: Mapping[str, Callable[[Any, Any, Setting], Tuple[str, str]]] = {
    "flag": _flag,
    "number": _number,
    "choice": _choice,
    "sources": _sources,
    "switches": _member_switch,
    "pool": _pool,
}
