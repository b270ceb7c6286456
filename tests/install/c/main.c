/* An outside C program over the installed library: one call, its answer checked. */
#include <stdio.h>
#include <string.h>
#include <tilefold/tilefold.h>

int main(void) {
  float q[2] = {0.5f, -1.0f};
  float k[2] = {2.0f, 1.0f};
  float v[2] = {3.0f, 4.0f};
  float o[2] = {0.0f, 0.0f};
  int64_t shape[4] = {1, 1, 1, 2};
  DLTensor tensors[4];
  float* data[4];
  int i;
  data[0] = q;
  data[1] = k;
  data[2] = v;
  data[3] = o;
  memset(tensors, 0, sizeof(tensors));
  for (i = 0; i < 4; ++i) {
    tensors[i].data = data[i];
    tensors[i].device.device_type = kDLCPU;
    tensors[i].ndim = 4;
    tensors[i].dtype.code = kDLFloat;
    tensors[i].dtype.bits = 32;
    tensors[i].dtype.lanes = 1;
    tensors[i].shape = shape;
  }
  if (tilefold_forward(&tensors[0], &tensors[1], &tensors[2], &tensors[3], NULL, NULL, NULL, 0,
                       NULL) != TILEFOLD_OK) {
    printf("%s\n", tilefold_last_error());
    return 1;
  }
  printf("tilefold %s: %g %g\n", tilefold_version(), o[0], o[1]);
  return o[0] == 3.0f && o[1] == 4.0f ? 0 : 1;
}
