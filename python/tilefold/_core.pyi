# The extension module; not a public interface.

from typing import Any, Callable, Dict, List, Optional, Sequence

has_cuda: bool

def version() -> str: ...
def devices() -> List[Dict[str, Any]]: ...
def kernels() -> List[Dict[str, Any]]: ...
def forward(
    q: Any,
    k: Any,
    v: Any,
    causal: Any,
    window: Any,
    scale: Optional[float],
    return_lse: bool,
    empty_row_lse: str,
    out: Any,
    stream: Any,
    layout: str,
    kernel: Optional[str],
    window_align: str,
    num_threads: int,
    /,
) -> Any: ...
def forward_of_operator(
    q: Any,
    k: Any,
    v: Any,
    causal: Any,
    window: Any,
    scale: Optional[float],
    return_lse: bool,
    empty_row_lse: str,
    out: Any,
    stream: Any,
    layout: str,
    kernel: Optional[str],
    window_align: str,
    num_threads: int,
    /,
) -> Any: ...
def forward_with_defaults(values: Any) -> Callable[[Any, Any, Any, Dict[str, Any]], Any]: ...
def explain(
    q: Any,
    k: Any,
    v: Any,
    causal: Any,
    window: Any,
    scale: Optional[float],
    return_lse: bool,
    empty_row_lse: str,
    layout: str,
    kernel: Optional[str],
    window_align: str,
    num_threads: int,
) -> str: ...
def validate(
    q_shape: Sequence[int],
    k_shape: Sequence[int],
    v_shape: Sequence[int],
    dtype: str,
    causal: Any,
    window: Any,
    scale: Optional[float],
    empty_row_lse: str,
    layout: str,
    kernel: Optional[str],
    window_align: str,
    num_threads: int,
) -> None: ...
def c_call_seconds(q: Any, k: Any, v: Any, o: Any, repeats: int) -> float: ...
def xla_handlers() -> Dict[str, Any]: ...

class layouts:
    @staticmethod
    def mma_m16n8k16_a(lane: int, reg: int, half: int, /) -> tuple[int, int]: ...
    @staticmethod
    def mma_m16n8k16_b(lane: int, reg: int, half: int, /) -> tuple[int, int]: ...
    @staticmethod
    def mma_m16n8k16_c(lane: int, reg: int, /) -> tuple[int, int]: ...
    @staticmethod
    def ldmatrix_x4_a(lane: int, /) -> tuple[int, int]: ...
    @staticmethod
    def ldmatrix_x4_b(lane: int, /) -> tuple[int, int]: ...
    @staticmethod
    def wgmma_accumulator(thread: int, reg: int, /) -> tuple[int, int]: ...
    @staticmethod
    def swizzle128(row: int, column: int, rows: int, /) -> int: ...
    @staticmethod
    def tile_offset_bytes(rows: int, columns: int, row: int, chunk: int, /) -> int: ...
    @staticmethod
    def block_range(
        seqlen_k: int,
        diagonal_left: int,
        diagonal_right: int,
        row_begin: int,
        row_end: int,
        block_n: int,
        /,
    ) -> tuple[int, int, int, int]: ...
    @staticmethod
    def sees(
        seqlen_k: int, diagonal_left: int, diagonal_right: int, row: int, key: int, /
    ) -> bool: ...
    @staticmethod
    def tile_of(
        num_batch_heads: int, num_m_blocks: int, num_splits: int, cta: int, /
    ) -> tuple[int, int, int]: ...
    @staticmethod
    def tile_in_head_order(index: int, num_m_blocks: int, /) -> tuple[int, int, int]: ...
    @staticmethod
    def tile_longest_first(
        index: int,
        num_m_blocks: int,
        num_batch_heads: int,
        section_heads: int,
        tail_m_blocks: int,
        /,
    ) -> tuple[int, int, int]: ...
