/* The C interface of tilefold: exact attention, O = softmax(scale * Q K^T + mask) V, on DLPack
 * tensors.
 *
 * Plain C11 and DLPack, nothing else. Every function is safe to call from several host threads. The
 * library never prints, exits or aborts (what OpenMP may do: see num_threads); it allocates no
 * device memory and never waits for a device. A call either succeeds or returns a status, in which
 * case nothing was launched, no output was written, and tilefold_last_error() holds a sentence that
 * names the argument, its value and what is accepted.
 *
 * Growth: structs that a caller fills begin with their own size, and any size from the first
 * release's on is taken; enum values never change meaning; functions are only added.
 */
/* clang-format off */ /* comments stand in columns */
#ifndef TILEFOLD_TILEFOLD_H_
#define TILEFOLD_TILEFOLD_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#define TILEFOLD_VERSION_MAJOR 0
#define TILEFOLD_VERSION_MINOR 1
#define TILEFOLD_VERSION_PATCH 0
#define TILEFOLD_VERSION_STRING "0.1.0"

#if defined(_WIN32)
#define TILEFOLD_API
#else
#define TILEFOLD_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** What a call returned. */
typedef enum tilefold_status {
  TILEFOLD_OK = 0,                      /**< The work was done (CPU) or enqueued on the stream (CUDA). */
  TILEFOLD_ERROR_INVALID_ARGUMENT = 1,  /**< An argument is wrong in itself: null, rank, shape, dtype, overlap. */
  TILEFOLD_ERROR_UNSUPPORTED = 2,       /**< The arguments are sound, but no kernel here serves them. */
  TILEFOLD_ERROR_WORKSPACE = 3,         /**< The workspace is null, too small or misaligned. */
  TILEFOLD_ERROR_DEVICE = 4,            /**< The tensors' device cannot be used: absent, too old, no CUDA in this build. */
  TILEFOLD_ERROR_CUDA = 5,              /**< The CUDA runtime refused; the sentence carries its own words. */
  TILEFOLD_ERROR_OUT_OF_MEMORY = 6,     /**< Host memory for scratch could not be had. */
  TILEFOLD_ERROR_INTERNAL = 7           /**< A fault of the library. */
} tilefold_status;

/** Which keys a query may see. `i` is the query row, `j` the key, Nq and Nk the lengths. */
typedef enum tilefold_causal {
  TILEFOLD_CAUSAL_NONE = 0,         /**< Every key. */
  TILEFOLD_CAUSAL_TOP_LEFT = 1,     /**< j <= i. */
  TILEFOLD_CAUSAL_BOTTOM_RIGHT = 2  /**< j <= i + Nk - Nq: the last query sees every key. */
} tilefold_causal;

/** Where the diagonal of the window lies. */
typedef enum tilefold_window_align {
  TILEFOLD_WINDOW_ALIGN_AUTO = 0,         /**< As `causal` says; top-left when there is no causal mask. */
  TILEFOLD_WINDOW_ALIGN_TOP_LEFT = 1,     /**< The window of row i is centred on key i. */
  TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT = 2  /**< The window of row i is centred on key i + Nk - Nq. */
} tilefold_window_align;

/** The LSE written for a row that sees no key (its O is 0 in any case). */
typedef enum tilefold_empty_row_lse {
  TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY = 0, /**< +inf, FlashAttention-2's convention. */
  TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY = 1  /**< -inf, the neutral element when partial results are merged. */
} tilefold_empty_row_lse;

/** Options of a forward call. Fill with tilefold_options_init(), then change what you need. */
typedef struct tilefold_options {
  size_t struct_bytes;     /**< sizeof(tilefold_options) as the caller compiled it. Set by tilefold_options_init(). */
  int32_t causal;          /**< A tilefold_causal. Default: none. */
  int32_t has_scale;       /**< 0: scale is 1/sqrt(D). 1: `scale` below is used. Default: 0. */
  float scale;             /**< Any finite number; see "Range" at tilefold_forward(). 0 while has_scale is 0. */
  int32_t empty_row_lse;   /**< A tilefold_empty_row_lse. Default: +inf. */
  int64_t window_left;     /**< Keys before the window's diagonal that a row sees; -1: all. Default: -1. */
  int64_t window_right;    /**< Keys after the window's diagonal that a row sees; -1: all. Default: -1. */
  int32_t window_align;    /**< A tilefold_window_align. Default: auto. */
  int32_t num_threads;     /**< CPU only: threads to use; 0: as OpenMP decides. Default: 0. No more than the larger of
                                the processors and OpenMP's own number, nor than OMP_THREAD_LIMIT, are used. Where the
                                system refuses to start even those, OpenMP ends the process: give 1, or lower the
                                limit, where threads are scarce. */
  const char* kernel;      /**< Name of the kernel row to use (see tilefold_kernel_info()); NULL: the library chooses,
                                or the environment variable TILEFOLD_FORCE_KERNEL does. Default: NULL. */
} tilefold_options;

/** A device that tensors may lie on. */
typedef struct tilefold_device_info {
  size_t struct_bytes;             /**< Set by the caller to sizeof(tilefold_device_info). */
  DLDevice device;                 /**< What a DLTensor on it carries. */
  char name[128];                  /**< The processor's name. */
  int32_t compute_capability;      /**< 10 * major + minor (90 for Hopper); 0 for the CPU. */
  int32_t num_multiprocessors;     /**< Streaming multiprocessors; for the CPU, hardware threads. */
  int64_t shared_memory_bytes;     /**< Most shared memory of one thread block, bytes; 0 for the CPU. */
  int64_t l2_bytes;                /**< Last-level cache, bytes (0 if unknown). */
  int32_t usable;                  /**< 1 if this build can run on it. */
  char note[256];                  /**< Instruction set in use (CPU), or why the device is not usable. */
} tilefold_device_info;

/** A compiled kernel: one row of the table that dispatch walks. */
typedef struct tilefold_kernel_info {
  size_t struct_bytes;        /**< Set by the caller to sizeof(tilefold_kernel_info). */
  char name[64];              /**< Its name, as `options.kernel` and TILEFOLD_FORCE_KERNEL take it. */
  char backend[16];           /**< "cpu", "sm80", "sm90" or "generic". */
  char dtypes[64];            /**< The dtypes that it serves, comma-separated. */
  int32_t head_dim;           /**< Largest D of its tile; 0: any. */
  int32_t head_dim_v;         /**< Largest Dv of its tile; 0: any. */
  int32_t block_m;            /**< Query rows of a tile; 0: chosen at run time. */
  int32_t block_n;            /**< Key rows of a tile; 0: chosen at run time. */
  int32_t num_stages;         /**< K/V tiles in flight; 0: does not apply. */
  int32_t num_threads;        /**< Threads of a CTA; 0: does not apply. */
  int32_t shared_memory_bytes;/**< Shared memory of a CTA, bytes. */
} tilefold_kernel_info;

/** The library's version, "major.minor.patch". */
TILEFOLD_API const char* tilefold_version(void);

/** The name of a status, e.g. "invalid argument". Never NULL, whatever the value. */
TILEFOLD_API const char* tilefold_status_string(tilefold_status status);

/** The sentence of the last failed call on this thread; "" if none failed yet. Valid until this thread's next call. */
TILEFOLD_API const char* tilefold_last_error(void);

/** Fills `options` with the defaults.
 *
 * \param options        Not NULL.
 * \param struct_bytes   sizeof(tilefold_options) as the caller compiled it; no more than that is written.
 * \return TILEFOLD_ERROR_INVALID_ARGUMENT if `options` is NULL or `struct_bytes` is smaller than the first release's (56)
 *         or larger than 4096.
 */
TILEFOLD_API tilefold_status tilefold_options_init(tilefold_options* options, size_t struct_bytes);

/** Attention, forward: O = softmax(scale * Q K^T + mask) V; LSE = log sum exp of each row's visible logits.
 *
 * Shapes (logical order; any int64 strides, in elements; strides NULL = contiguous; the stride of an axis of length 1
 * is ignored; stride 0 is legal on inputs):
 * \param q    [B, Hq, Nq, D]    float16, bfloat16 or float32 (float32: CPU and the generic CUDA kernel).
 * \param k    [B, Hkv, Nk, D]   the dtype and device of q; Hq must be a multiple of Hkv.
 * \param v    [B, Hkv, Nk, Dv]  the dtype and device of q.
 * \param o    [B, Hq, Nq, Dv]   the dtype and device of q; written. Its strides must nest (each larger than all that the
 *                               smaller ones reach), so that no two elements share memory, and the span of its bytes,
 *                               first to last, may not overlap that of q, k, v or lse.
 * \param lse  [B, Hq, Nq]       float32 on the device of q; written; NULL: not wanted. Natural logarithm.
 * \param options         NULL: the defaults.
 * \param workspace       Memory on the device of q, aligned to 256 bytes; may be NULL where
 *                        tilefold_forward_workspace_bytes() says 0. Its contents need no preparation and are not kept.
 *                        Calls that may run at the same time need a workspace each.
 * \param workspace_bytes Its size, bytes.
 * \param stream          A cudaStream_t (NULL: the default stream); ignored on the CPU.
 *
 * A row that sees no key gives O = 0 and the LSE that options.empty_row_lse names. Memory beyond a tensor's end is
 * never read into a result. Nq, Nk, B and Hq may be 0; no extent may be larger than 2^40.
 *
 * Range: q.k, and log2(e) * scale * q.k (log2(e) = 1.4427), must stay within float32 (3.4e38), and so must the weighted
 * sums of V's elements; a row where one does not gives inf or NaN. Accumulation is float32.
 *
 * Alignment: that of the dtype; 16-byte rows and a unit last stride reach the fast CUDA kernels.
 * Device: taken from the tensors; the calling thread's current device is left as it was. CUDA calls are asynchronous
 * on `stream` and may be captured into a graph.
 * Determinism: the same call on the same device gives the same bits.
 * Source: Dao, "FlashAttention-2" (2023), Algorithm 1.
 */
TILEFOLD_API tilefold_status tilefold_forward(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                              const DLTensor* o, const DLTensor* lse,
                                              const tilefold_options* options, void* workspace,
                                              size_t workspace_bytes, void* stream);

/** Workspace that tilefold_forward() needs for the same arguments, bytes. Data pointers are looked at for their
 * alignment only. Often 0.
 *
 * \param workspace_bytes Written on success; not NULL.
 * \return What tilefold_forward() would return for the same tensors and options.
 */
TILEFOLD_API tilefold_status tilefold_forward_workspace_bytes(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                                              const DLTensor* o, const DLTensor* lse,
                                                              const tilefold_options* options,
                                                              size_t* workspace_bytes);

/** Tells which kernel tilefold_forward() would run for the same arguments, and why not the others.
 *
 * The text's first line is the chosen kernel's name ("none" if no kernel serves the problem); then one line per row of
 * the table: "name: reason".
 *
 * \param text        Receives the text, NUL-terminated, cut to fit; may be NULL if text_bytes is 0.
 * \param text_bytes  Its size, bytes.
 * \param text_needed Written with the size of the whole text, NUL included; may be NULL.
 * \return TILEFOLD_OK also when no kernel serves the problem; the errors of tilefold_forward() for unsound arguments.
 */
TILEFOLD_API tilefold_status tilefold_explain(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                              const DLTensor* o, const DLTensor* lse,
                                              const tilefold_options* options, char* text, size_t text_bytes,
                                              size_t* text_needed);

/** Number of devices: the CPU (index 0), then the CUDA devices that the driver shows. */
TILEFOLD_API int32_t tilefold_device_count(void);

/** Describes device `index`, 0 <= index < tilefold_device_count(). `info->struct_bytes` must be set. */
TILEFOLD_API tilefold_status tilefold_get_device_info(int32_t index, tilefold_device_info* info);

/** Number of compiled kernels. */
TILEFOLD_API int32_t tilefold_kernel_count(void);

/** Describes kernel `index`, 0 <= index < tilefold_kernel_count(), in the order dispatch prefers them.
 * `info->struct_bytes` must be set. */
TILEFOLD_API tilefold_status tilefold_get_kernel_info(int32_t index, tilefold_kernel_info* info);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TILEFOLD_TILEFOLD_H_ */
