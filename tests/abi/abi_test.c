/* The C interface from plain C11: every function called, every enumerator and member named. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tilefold/tilefold.h>

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      printf("tilefold_last_error(): %s\n", tilefold_last_error());  \
      return 1;                                                      \
    }                                                                \
  } while (0)

/* What a released enumerator means never changes. */
_Static_assert(TILEFOLD_OK == 0 && TILEFOLD_ERROR_INVALID_ARGUMENT == 1 &&
                   TILEFOLD_ERROR_UNSUPPORTED == 2 && TILEFOLD_ERROR_WORKSPACE == 3 &&
                   TILEFOLD_ERROR_DEVICE == 4 && TILEFOLD_ERROR_CUDA == 5 &&
                   TILEFOLD_ERROR_OUT_OF_MEMORY == 6 && TILEFOLD_ERROR_INTERNAL == 7,
               "statuses");
_Static_assert(TILEFOLD_CAUSAL_NONE == 0 && TILEFOLD_CAUSAL_TOP_LEFT == 1 &&
                   TILEFOLD_CAUSAL_BOTTOM_RIGHT == 2,
               "causal");
_Static_assert(TILEFOLD_WINDOW_ALIGN_AUTO == 0 && TILEFOLD_WINDOW_ALIGN_TOP_LEFT == 1 &&
                   TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT == 2,
               "window align");
_Static_assert(TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY == 0 &&
                   TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY == 1,
               "empty row");
_Static_assert(offsetof(tilefold_options, struct_bytes) == 0 &&
                   offsetof(tilefold_device_info, struct_bytes) == 0 &&
                   offsetof(tilefold_kernel_info, struct_bytes) == 0,
               "structs begin with their size");

static DLTensor tensor(float* data, int32_t rank, int64_t* shape) {
  DLTensor t;
  memset(&t, 0, sizeof(t));
  t.data = data;
  t.device.device_type = kDLCPU;
  t.ndim = rank;
  t.dtype.code = kDLFloat;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

int main(void) {
  /* One head, two rows, causal: row 0 sees key 0 alone. */
  float q_data[2 * 4] = {1, 0, 0, 0, 0, 1, 0, 0};
  float k_data[2 * 4] = {1, 2, 3, 4, 4, 3, 2, 1};
  float v_data[2 * 4] = {1, 1, 1, 1, 3, 3, 3, 3};
  float o_data[2 * 4];
  float lse_data[2];
  int64_t shape[4] = {1, 1, 2, 4};
  int64_t lse_shape[3] = {1, 1, 2};
  DLTensor q = tensor(q_data, 4, shape);
  DLTensor k = tensor(k_data, 4, shape);
  DLTensor v = tensor(v_data, 4, shape);
  DLTensor o = tensor(o_data, 4, shape);
  DLTensor lse = tensor(lse_data, 3, lse_shape);
  tilefold_options options;
  size_t bytes = 99;
  size_t needed = 0;
  char text[4096];
  tilefold_device_info device;
  tilefold_kernel_info kernel;
  float p;

  CHECK(strcmp(tilefold_version(), TILEFOLD_VERSION_STRING) == 0);
  CHECK(strcmp(tilefold_status_string(TILEFOLD_OK), "ok") == 0);
  CHECK(strcmp(tilefold_last_error(), "") == 0);
  CHECK(tilefold_options_init(&options, sizeof(options)) == TILEFOLD_OK);
  options.causal = TILEFOLD_CAUSAL_TOP_LEFT;
  options.has_scale = 1;
  options.scale = 1.0f;

  CHECK(tilefold_forward_workspace_bytes(&q, &k, &v, &o, &lse, &options, &bytes) == TILEFOLD_OK);
  CHECK(bytes == 0);
  CHECK(tilefold_forward(&q, &k, &v, &o, &lse, &options, NULL, 0, NULL) == TILEFOLD_OK);
  CHECK(o_data[0] == 1.0f && o_data[3] == 1.0f);
  CHECK(lse_data[0] == 1.0f);
  p = 1.0f / (1.0f + expf(2.0f - 3.0f)); /* of key 1 for row 1: logits 2 and 3 */
  CHECK(fabsf(o_data[4] - (1.0f + 2.0f * p)) < 1e-5f);
  CHECK(fabsf(lse_data[1] - (3.0f - logf(p))) < 1e-5f);

  CHECK(tilefold_explain(&q, &k, &v, &o, &lse, &options, text, sizeof(text), &needed) ==
        TILEFOLD_OK);
  CHECK(needed > 1);

  CHECK(tilefold_device_count() >= 1);
  memset(&device, 0, sizeof(device));
  device.struct_bytes = sizeof(device);
  CHECK(tilefold_get_device_info(0, &device) == TILEFOLD_OK);
  CHECK(device.device.device_type == kDLCPU && device.usable == 1 && device.name[0] != '\0');
  CHECK(device.compute_capability == 0 && device.num_multiprocessors >= 1);
  CHECK(device.shared_memory_bytes == 0 && device.l2_bytes >= 0 && device.note[0] != '\0');

  CHECK(tilefold_kernel_count() >= 1);
  memset(&kernel, 0, sizeof(kernel));
  kernel.struct_bytes = sizeof(kernel);
  CHECK(tilefold_get_kernel_info(tilefold_kernel_count() - 1, &kernel) == TILEFOLD_OK);
  CHECK(strcmp(kernel.backend, "cpu") == 0 && kernel.name[0] != '\0' && kernel.dtypes[0] != '\0');
  CHECK(kernel.head_dim >= 0 && kernel.head_dim_v >= 0 && kernel.block_m >= 0);
  CHECK(kernel.block_n >= 0 && kernel.num_stages >= 0 && kernel.num_threads >= 0);
  CHECK(kernel.shared_memory_bytes >= 0);

  CHECK(tilefold_forward(NULL, &k, &v, &o, &lse, &options, NULL, 0, NULL) ==
        TILEFOLD_ERROR_INVALID_ARGUMENT);
  CHECK(strcmp(tilefold_last_error(), "q is NULL; a DLTensor is needed") == 0);
  return 0;
}
