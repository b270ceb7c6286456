"""tilefold's C interface by ctypes, for the programs that set it beside PyTorch: no binding stands between."""

import ctypes
import os


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("causal", ctypes.c_int32),
        ("has_scale", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("empty_row_lse", ctypes.c_int32),
        ("window_left", ctypes.c_int64),
        ("window_right", ctypes.c_int64),
        ("window_align", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("kernel", ctypes.c_char_p),
    ]


class DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("device", DLDevice),
        ("name", ctypes.c_char * 128),
        ("compute_capability", ctypes.c_int32),
        ("num_multiprocessors", ctypes.c_int32),
        ("shared_memory_bytes", ctypes.c_int64),
        ("l2_bytes", ctypes.c_int64),
        ("usable", ctypes.c_int32),
        ("note", ctypes.c_char * 256),
    ]


DEVICE_TYPES = {"cpu": 1, "cuda": 2}  # kDLCPU, kDLCUDA
DATA_TYPES = {"float16": (2, 16), "bfloat16": (4, 16), "float32": (2, 32)}
CAUSAL_TOP_LEFT = 1


class Tensor:
    """A torch tensor as a DLTensor; keeps what the struct points to alive."""

    def __init__(self, tensor):
        rank = tensor.dim()
        self.tensor = tensor
        self.shape = (ctypes.c_int64 * rank)(*tensor.shape)
        self.strides = (ctypes.c_int64 * rank)(*tensor.stride())
        code, bits = DATA_TYPES[str(tensor.dtype).removeprefix("torch.")]
        self.dl = DLTensor(
            tensor.data_ptr(),
            DLDevice(DEVICE_TYPES[tensor.device.type], tensor.device.index or 0),
            rank,
            DLDataType(code, bits, 1),
            self.shape,
            self.strides,
            0,
        )
        self.ref = ctypes.byref(self.dl)


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(os.path.abspath(path))
        self.lib.tilefold_last_error.restype = ctypes.c_char_p
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.lib.tilefold_forward.argtypes = [pointer] * 7 + [size, pointer]

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.tilefold_last_error().decode())

    def options(self, causal, kernel=None, num_threads=0):
        options = Options()
        self.check(self.lib.tilefold_options_init(ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options))))
        options.causal = CAUSAL_TOP_LEFT if causal else 0
        options.kernel = kernel.encode() if kernel else None
        options.num_threads = num_threads
        return options

    def device_info(self, index):
        info = DeviceInfo(struct_bytes=ctypes.sizeof(DeviceInfo))
        self.check(self.lib.tilefold_get_device_info(index, ctypes.byref(info)))
        return info
