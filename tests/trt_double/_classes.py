"""The classes of the double: made from the facts, with the played behaviour where there is one."""

from types import SimpleNamespace
from typing import Any

from . import _enum
from ._api import ClassFacts, Facts
from ._fits import bare, fits
from ._signature import bind, literal, parse


class NotPlayed(NotImplementedError):
    """The release has this name, but the double has no behaviour for it."""


class Played(type):
    """Metaclass: an instance must have been through its class's own constructor, as in pybind11."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        """The instance, if every overriding constructor called the one below."""
        made = super().__call__(*arguments, **named)
        if not hasattr(made, "_s"):
            raise TypeError(f"{cls.__name__}.__init__() must be called when overriding __init__")
        return made


class Base(metaclass=Played):
    """What every class of the double is: one hidden state, no other attribute."""

    __slots__ = ("__weakref__", "_s")


class HostMemory(bytes):
    """Memory as IHostMemory gives it: a buffer, not a sequence."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in type(self)._api:  # type: ignore[attr-defined]
            return super().__getattribute__(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _refuse(self, *_arguments: object) -> Any:
        raise TypeError(f"{type(self).__name__} is a buffer: make bytes or a memoryview of it")

    __len__ = __iter__ = __getitem__ = __add__ = __contains__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class Factory:
    """Makes the classes of one module.

    Attributes:
        classes: The made classes by name; nested enums as "ILogger.Severity".
    """

    def __init__(
        self, facts: Facts, module: str, double: Any, behaviours: dict[tuple[str, str], Any]
    ) -> None:
        self.facts = facts
        self.module = module
        self.double = double
        self.behaviours = behaviours
        self.classes: dict[str, Any] = {}
        for name in facts.classes:
            self._make(name)

    def find(self, owner: str, member: str) -> Any:
        """The behaviour of `member`, of the class or the nearest class it derives from."""
        found = self.behaviours.get((owner, member))
        if found is None:
            for base in self.facts.classes[owner].bases if owner in self.facts.classes else ():
                found = self.find(base, member)
                if found is not None:
                    break
        return found

    def new(self, name: str, /, **state: Any) -> Any:
        """An object of class `name` as the library itself makes it, constructor or not."""
        kind = self.classes[name]
        made = object.__new__(kind)
        object.__setattr__(made, "_s", SimpleNamespace(double=self.double, kind=name, **state))
        return made

    def call(
        self, owner: str, name: str, signatures: tuple[str, ...], arguments: Any, named: Any
    ) -> dict[str, Any]:
        """The arguments by name.

        Raises:
            TypeError: They fit no overload of this release.
        """
        reasons = []
        for text in signatures:
            bound = bind(parse(text, bool(owner)), arguments, named, self._fits, self._default)
            if not isinstance(bound, str):
                return bound
            reasons.append(f"\n    {text}: {bound}")
        where = f"{owner}.{name}" if owner else name
        raise TypeError(
            f"{where}(): incompatible function arguments of TensorRT {self.facts.version}:"
            + "".join(reasons)
        )

    def _fits(self, kind: str, value: Any) -> bool:
        return fits(kind, value, self.classes)

    def _default(self, kind: str, text: str) -> Any:
        value = literal(text)
        enum = self.classes.get(bare(kind))
        if isinstance(value, str) and isinstance(enum, _enum.EnumType):
            return enum.__members__[text.strip("<>").split(":")[0].split(".")[-1]]
        return value

    def _make(self, name: str) -> Any:
        if name in self.classes:
            return self.classes[name]
        facts = self.facts.classes[name]
        if facts.members is not None:
            made: Any = _enum.make(name.rpartition(".")[2], name, self.module, facts.members)
        elif name == "IHostMemory":
            made = type(
                name,
                (HostMemory,),
                {"__module__": self.module, "_api": frozenset(facts.properties)},
            )
            for member, (_, _) in facts.properties.items():
                setattr(made, member, property(self.behaviours[(name, f"get {member}")]))
        else:
            bases = tuple(self._make(base) for base in facts.bases) or (Base,)
            made = Played(
                name, bases, {"__slots__": (), "__module__": self.module, **self._members(facts)}
            )
        self.classes[name] = made
        owner, _, nested = name.rpartition(".")
        if owner:
            outer = self._make(owner)
            setattr(outer, nested, made)
            for key, member in getattr(made, "__members__", {}).items():
                if owner in ("ILogger", "Logger"):  # py::enum_::export_values: trt.Logger.WARNING
                    setattr(outer, key, member)
        return made

    def _members(self, facts: ClassFacts) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for method, signatures in facts.methods.items():
            if method != "__init__":
                members[method] = self._method(facts.name, method, signatures)
        for name, (kind, writable) in facts.properties.items():
            members[name] = self._property(facts.name, name, kind, writable)
        members["__init__"] = self._constructor(facts)
        for special in (
            "__len__",
            "__getitem__",
            "__iter__",
            "__eq__",
            "__hash__",
            "__str__",
            "__array__",
        ):
            played = self.behaviours.get((facts.name, special))
            if played is not None:
                members[special] = played
        return members

    def _constructor(self, facts: ClassFacts) -> Any:
        signatures = facts.methods.get("__init__", ())
        factory = self

        def construct(this: Any, *arguments: Any, **named: Any) -> None:
            if not signatures:
                raise TypeError(f"{factory.module}.{facts.name}: No constructor defined!")
            bound = factory.call(facts.name, "__init__", signatures, arguments, named)
            object.__setattr__(this, "_s", SimpleNamespace(double=factory.double, kind=facts.name))
            played = factory.find(facts.name, "__init__")
            if played is not None:
                played(this, **bound)
            elif bound:
                raise NotPlayed(f"{facts.name}({', '.join(bound)})")

        return construct

    def _method(self, owner: str, name: str, signatures: tuple[str, ...]) -> Any:
        factory = self

        def method(this: Any, *arguments: Any, **named: Any) -> Any:
            bound = factory.call(owner, name, signatures, arguments, named)
            played = factory.find(owner, name)
            if played is None:
                raise NotPlayed(f"{owner}.{name}")
            return played(this, **bound)

        method.__name__ = name
        method.__qualname__ = f"{owner}.{name}"
        method.__doc__ = "\n".join(signatures)
        return method

    def _property(self, owner: str, name: str, kind: str, writable: bool) -> Any:
        factory = self

        def read(this: Any) -> Any:
            played = factory.find(owner, f"get {name}")
            if played is not None:
                return played(this)
            try:
                return vars(this._s)[name]
            except KeyError:
                raise NotPlayed(f"{owner}.{name}") from None

        def write(this: Any, value: Any) -> None:
            if (value is not None or factory._scalar(kind)) and not factory._fits(kind, value):
                raise TypeError(f"{owner}.{name} is a {kind}, not {value!r}")
            played = factory.find(owner, f"set {name}")
            if played is not None:
                played(this, value)
            else:
                setattr(this._s, name, value)

        return property(read, write if writable else None)

    def _scalar(self, kind: str) -> bool:
        """Whether None is no value of this type (it is one of a pointer)."""
        name = bare(kind)
        return name in ("int", "float", "bool", "str", "Dims") or isinstance(
            self.classes.get(name), _enum.EnumType
        )
