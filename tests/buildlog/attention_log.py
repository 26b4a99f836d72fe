"""A verbose TensorRT 10.3 log of a small encoder and decoder, made up after real ones of DETR.

Every name and size is our own; the order of layers, what fuses with what and which layers are one
candidate are as those logs have them.
"""

from __future__ import annotations

ROWS, QUERIES, WIDTH, HEADS, HIDDEN = 12, 4, 16, 2, 32
EACH = WIDTH // HEADS
SLOTS = 16


class _Log:
    def __init__(self, int8: bool) -> None:
        self.int8 = int8
        self.parsed: list[str] = []
        self.gpu: list[str] = []
        self.groups: list[list[str]] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def node(self, op: str, name: str, shape: tuple[int, ...], *inputs: str) -> str:
        """The parser's lines of a node; its result is called as it is."""
        read = "".join(f"[{one} -> {_form(self.shapes[one])}[FLOAT]], " for one in inputs)
        if op == "Reshape":
            read += f"[{name}.to -> ({len(shape)})[INT64]], "
        self.shapes[f"{name}:0"] = shape
        self.parsed += [
            f"[V] [TRT] Parsing node: {name} [{op}]",
            f"[V] [TRT] {name} [{op}] inputs: {read}",
            f"[V] [TRT] Registering layer: {name} for ONNX node: {name}",
            f"[V] [TRT] {name} [{op}] outputs: [{name}:0 -> {_form(shape)}[FLOAT]], ",
        ]
        return f"{name}:0"

    def constant(self, name: str, *shape: int) -> str:
        self.shapes[name] = shape
        return name

    def written(self, name: str, *shape: int) -> str:
        """A constant that stays a layer of its own."""
        self.on_gpu("CONSTANT", name)
        return self.constant(name, *shape)

    def on_gpu(self, kind: str, *parts: str) -> None:
        self.gpu.append(f"{kind}: {' + '.join(parts)}")

    def alone(self, name: str) -> None:
        self.groups.append([name])

    def gemm(self, name: str, x: str, columns: int) -> str:
        rows, depth = self.shapes[x]
        weights = self.constant(f"{name}.weight", depth, columns)
        bias = self.constant(f"{name}.bias", columns)
        return self.node("Gemm", name, (rows, columns), x, weights, bias)

    def flat(self, name: str, x: str) -> str:
        return self.node("Reshape", name, (self.shapes[x][1], self.shapes[x][2]), x)

    def split(self, at: str, gemm: str, number: str, perm: str, *, columns: bool = False) -> str:
        """Reshape and transposition behind a product, which are one shuffle with it."""
        rows = self.shapes[f"{gemm}:0"][0]
        reshape, turn = f"{at}/Reshape{number}", f"{at}/Transpose{perm}"
        y = self.node("Reshape", reshape, (1, rows, HEADS, EACH), f"{gemm}:0")
        shape = (1, HEADS, EACH, rows) if columns else (1, HEADS, rows, EACH)
        self.on_gpu("SHUFFLE", f"reshape_after_{gemm}", reshape, turn)
        return self.node("Transpose", turn, shape, y)

    def scaled(self, name: str, x: str) -> str:
        return self.node("Mul", name, self.shapes[x], x, self.constant("root"))

    def attended(self, at: str, gemm: str, q: str, k: str, v: str) -> str:
        rows, columns = self.shapes[q][2], self.shapes[k][3]
        y = self.node("MatMul", f"{at}/MatMul", (1, HEADS, rows, columns), q, k)
        y = self.node("Softmax", f"{at}/Softmax", self.shapes[y], y)
        y = self.node("MatMul", f"{at}/MatMul_1", (1, HEADS, rows, EACH), y, v)
        y = self.node("Transpose", f"{at}/Transpose_3", (1, rows, HEADS, EACH), y)
        y = self.node("Reshape", f"{at}/Reshape_3", (1, rows, WIDTH), y)
        y = self.gemm(gemm, self.flat(f"Reshape_of_{gemm}", y), WIDTH)
        y = self.node("Reshape", f"Reshape_from_{gemm}", (1, rows, WIDTH), y)
        self.on_gpu("MATRIX_MULTIPLY", f"{at}/MatMul")
        self.alone(f"{at}/Softmax")
        self.on_gpu("MATRIX_MULTIPLY", f"{at}/MatMul_1")
        self.on_gpu(
            "SHUFFLE",
            f"{at}/Transpose_3",
            f"{at}/Reshape_3",
            f"Reshape_of_{gemm}",
            f"reshape_before_{gemm}",
        )
        self.alone(gemm)
        self.on_gpu("SHUFFLE", f"reshape_after_{gemm}", f"Reshape_from_{gemm}")
        return y

    def added(self, name: str, x: str, y: str) -> str:
        self.alone(name)
        return self.node("Add", name, self.shapes[x], x, y)

    def normed(self, name: str, x: str) -> str:
        self.on_gpu("NORMALIZATION", name)
        parts = (self.constant(f"{name}.{part}", WIDTH) for part in ("weight", "bias"))
        return self.node("LayerNormalization", name, self.shapes[x], x, *parts)

    def forward(self, at: str, gemms: tuple[str, str], x: str) -> str:
        up, down = gemms
        y = self.gemm(up, self.flat(f"Reshape_of_{up}", x), HIDDEN)
        y = self.node("Relu", f"{at}/Relu", self.shapes[y], y)
        y = self.gemm(down, y, WIDTH)
        y = self.node("Reshape", f"Reshape_from_{down}", self.shapes[x], y)
        self.on_gpu("SHUFFLE", f"Reshape_of_{up}", f"reshape_before_{up}")
        self.alone(up)
        self.on_gpu("SHUFFLE", f"reshape_after_{up}")
        self.alone(f"{at}/Relu")
        self.on_gpu("SHUFFLE", f"reshape_before_{down}")
        self.alone(down)
        self.on_gpu("SHUFFLE", f"reshape_after_{down}", f"Reshape_from_{down}")
        return self.normed(f"{at}/norm_2", self.added(f"{at}/Add_2", x, y))

    def itself(self, at: str, names: tuple[str, str, str, str], x: str, position: str) -> str:
        """Self-attention: q and k read the sum with the positions, v the tokens alone."""
        gq, gk, gv, out = names
        placed = self.added(f"{at}/Add", x, position)
        both = self.flat(f"Reshape_of_{gq}", placed)
        self.on_gpu("SHUFFLE", f"Reshape_of_{gq}")
        self.gemm(gq, both, WIDTH)
        q = self.split(at, gq, "", "")
        self.gemm(gk, both, WIDTH)
        self.gemm(gv, self.flat(f"Reshape_of_{gv}", x), WIDTH)
        v = self.split(at, gv, "_2", "_1")
        k = self.split(at, gk, "_1", "_2", columns=True)
        for gemm in (gq, gk):
            self.on_gpu("SHUFFLE", f"reshape_before_{gemm}")
        self.on_gpu("SHUFFLE", f"Reshape_of_{gv}", f"reshape_before_{gv}")
        self.groups += [[gq, gk], [gv]] if self.int8 else [[gq, gk, gv]]
        self.groups.append([f"{at}/Mul", f"{at}/Mul_1"])
        q, k = self.scaled(f"{at}/Mul", q), self.scaled(f"{at}/Mul_1", k)
        y = self.attended(at, out, q, k, v)
        return self.normed(f"{at}/norm", self.added(f"{at}/Add_1", x, y))

    def memory(self, at: str, gemms: tuple[str, str], tokens: tuple[str, str]) -> tuple[str, str]:
        """Keys and values of attention to the encoder's tokens."""
        gk, gv = gemms
        self.gemm(gk, tokens[0], WIDTH)
        self.gemm(gv, tokens[1], WIDTH)
        for gemm in gemms:
            self.on_gpu("SHUFFLE", f"reshape_before_{gemm}")
        self.groups += [[gk], [gv]] if self.int8 else [[gk, gv]]
        v = self.split(at, gv, "_2", "_1")
        return self.split(at, gk, "_1", "_2", columns=True), v


def _form(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _write(log: _Log, encoders: int, decoders: int) -> str:
    log.shapes["image"] = (1, 3, 6, 8)
    log.constant("stem.weight", WIDTH, 3, 3, 3)
    x = log.node("Conv", "/stem/Conv", (1, WIDTH, 3, 4), "image", "stem.weight")
    log.parsed.insert(
        -1,
        "[V] [TRT] Using kernel: (3, 3), strides: (2, 2), prepadding: (1, 1), postpadding: "
        "(1, 1), dilations: (1, 1), numOutputs: 16, nbGroups: 1",
    )
    x = log.node("Relu", "/stem/Relu", log.shapes[x], x)
    log.groups.append(["/stem/Conv", "/stem/Relu"])
    x = log.node("Reshape", "/Reshape", (1, WIDTH, ROWS), x)
    x = log.node("Transpose", "/Transpose", (1, ROWS, WIDTH), x)
    log.on_gpu("SHUFFLE", "/Reshape", "/Transpose")
    position = log.written("positions", 1, ROWS, WIDTH)
    for i in range(encoders):
        at, names = f"/encoder.{i}", tuple(f"Gemm_e{i}{n}" for n in ("q", "k", "v", "o", "u", "d"))
        x = log.itself(at, names[:4], x, position)
        x = log.forward(f"{at}/mlp", names[4:], x)
    placed = log.added("/memory/Add", x, position)
    tokens = (log.flat("/memory/Reshape", placed), log.flat("/memory/Reshape_1", x))
    log.on_gpu("SHUFFLE", "/memory/Reshape")
    log.on_gpu("SHUFFLE", "/memory/Reshape_1")
    query = log.written("queries", 1, QUERIES, WIDTH)
    for i in range(decoders):
        at, names = f"/decoder.{i}", tuple(f"Gemm_d{i}{n}" for n in ("k", "v", "o", "u", "d", "q"))
        if i == 0:
            # what reads constants alone is folded
            k, v = log.memory(at, names[:2], tokens)
            log.alone(f"{at}/Mul_1")
            q, before = log.written("first", 1, HEADS, QUERIES, EACH), query
        else:
            own = tuple(f"Gemm_s{i}{n}" for n in ("q", "k", "v", "o"))
            before = log.itself(f"{at}/self", own, x, query)
            y = log.flat(f"Reshape_of_{names[5]}", log.added(f"{at}/Add", before, query))
            log.on_gpu("SHUFFLE", f"Reshape_of_{names[5]}", f"reshape_before_{names[5]}")
            log.alone(names[5])
            log.gemm(names[5], y, WIDTH)
            q = log.split(at, names[5], "", "")
            k, v = log.memory(at, names[:2], tokens)
            log.groups.append([f"{at}/Mul", f"{at}/Mul_1"])
            q = log.scaled(f"{at}/Mul", q)
        k = log.scaled(f"{at}/Mul_1", k)
        y = log.attended(at, names[2], q, k, v)
        y = log.added(f"{at}/Add_1", before, y) if i else log.added(f"{at}/Add_1", y, before)
        x = log.forward(f"{at}/mlp", names[3:5], log.normed(f"{at}/norm", y))
    return x


def attention_log(precision: str, encoders: int = 2, decoders: int = 3) -> list[str]:
    """Returns the log of a build in "fp16" or "int8"."""
    log = _Log(precision == "int8")
    last = _write(log, encoders, decoders)
    whole = {}
    for group in log.groups:
        for name in group:
            number = len(whole) + 40
            gemm = name.startswith("Gemm")
            whole[name] = f"{name} + (Unnamed Layer* {number}) [ElementWise]" if gemm else name
    largest = sorted(log.groups, key=len, reverse=True)[:SLOTS]
    nodes = ["...".join(dict.fromkeys((whole[g[0]], whole[g[-1]]))) for g in largest]
    lines = [
        "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=small.onnx --verbose",
        f"[I] Precision: FP32+{precision.upper()}",
        "[I] DLACore: 0",
        "[I] Compute Capability: 8.7",
        "[I] TensorRT version: 10.3.0",
        *log.parsed,
        f"[V] [TRT] Marking {last}_9 as output: {last}",
        "[I] Finished parsing network model. Parse time: 0.01",
        "[V] [TRT] ---------- Layers Running on DLA ----------",
        *(f"[V] [TRT] [DlaLayer] {name}" for name in whole.values()),
        "[V] [TRT] ---------- Layers Running on GPU ----------",
        *(f"[V] [TRT] [GpuLayer] {name}" for name in log.gpu),
        *(
            "[W] [TRT] DLA supports only 16 subgraphs per DLA core. Switching to GPU for layer "
            + whole[group[0]]
            for group in log.groups
            if group not in largest
        ),
    ]
    for node in nodes:
        lines += [
            f"[V] [TRT] {{ForeignNode[{node}]}} successfully offloaded to DLA.",
            "\tMemory consumption: Managed SRAM = 1 MiB,\tLocal DRAM = 2 MiB,\tGlobal DRAM = 4 MiB",
        ]
    lines.append(
        f"[V] [TRT] \tNumber of DLA node candidates offloaded : {SLOTS} out of {len(log.groups)}"
    )
    for node, group in zip(nodes, largest, strict=True):
        lines.append(f"[V] [TRT] {{ForeignNode[{node}]}}: DLA Network Layer Information:")
        lines += [f"Layer(CONVOLUTION): {whole[name]}, Precision: Half, a -> b" for name in group]
    return [*lines, "&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec"]
