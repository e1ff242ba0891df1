// The only file that knows the vendor. Kernels are written against what it defines; CUDA and HIP
// compile the same sources, and so does a host compiler, for tests/mmcv/simt.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(MMCV_SIMT)

#include "simt.h"

#elif defined(__HIP__) || defined(__HIPCC__)

#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

namespace gpu {
using Stream = hipStream_t;
using Half = __half;
using BFloat16 = __hip_bfloat16;
inline const char* last_error() {
  const hipError_t error = hipGetLastError();
  return error == hipSuccess ? nullptr : hipGetErrorString(error);
}
// Lanes of a wave, known when device code is compiled: `warpSize` is no constant in ROCm 7.
#if defined(__GFX9__)
constexpr int kWaveSize = 64;
#else
constexpr int kWaveSize = 32;
#endif
template <typename T>
__device__ inline T shuffle(T value, int lane) {
  return __shfl(value, lane);
}
template <typename T>
__device__ inline T shuffle_up(T value, int lanes) {
  return __shfl_up(value, lanes);
}
template <typename T>
__device__ inline T shuffle_down(T value, int lanes) {
  return __shfl_down(value, lanes);
}
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask);
}
__device__ inline uint64_t ballot(bool condition) { return __ballot(condition); }
__device__ inline int count_bits(uint64_t bits) { return __popcll(bits); }
__device__ inline int lowest_bit(uint64_t bits) {
  return __ffsll(static_cast<unsigned long long>(bits)) - 1;
}
// Waits for what was queued before.
inline void copy_to_host(void* target, const void* source, size_t bytes, Stream stream) {
  static_cast<void>(hipMemcpyAsync(target, source, bytes, hipMemcpyDeviceToHost, stream));
  static_cast<void>(hipStreamSynchronize(stream));
}
}  // namespace gpu

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace gpu {
using Stream = cudaStream_t;
using Half = __half;
using BFloat16 = __nv_bfloat16;
inline const char* last_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
constexpr int kWaveSize = 32;
// All lanes of the wave must take part in what follows, up to the end of this part.
constexpr unsigned kAllLanes = 0xffffffffu;
template <typename T>
__device__ inline T shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <typename T>
__device__ inline T shuffle_up(T value, int lanes) {
  return __shfl_up_sync(kAllLanes, value, lanes);
}
template <typename T>
__device__ inline T shuffle_down(T value, int lanes) {
  return __shfl_down_sync(kAllLanes, value, lanes);
}
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
__device__ inline uint64_t ballot(bool condition) { return __ballot_sync(kAllLanes, condition); }
__device__ inline int count_bits(uint64_t bits) { return __popcll(bits); }
__device__ inline int lowest_bit(uint64_t bits) {
  return __ffsll(static_cast<long long>(bits)) - 1;
}
// Waits for what was queued before.
inline void copy_to_host(void* target, const void* source, size_t bytes, Stream stream) {
  cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
}
}  // namespace gpu

#endif

#if !defined(MMCV_SIMT)

namespace gpu {
// What a launch asks for beyond the block that the kernel declares: `launch(kernel, {blocks,
// threads, stream, shared_bytes}, arguments...)`.
struct Launch {
  dim3 blocks;
  dim3 threads;
  Stream stream;
  size_t shared_bytes = 0;
};

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& how, const Arguments&... arguments) {
  kernel<<<how.blocks, how.threads, how.shared_bytes, how.stream>>>(
      static_cast<Parameters>(arguments)...);
}

// Shared memory of the size that the launch asked for.
template <typename T>
__device__ inline T* dynamic_shared() {
  extern __shared__ double mmcv_dynamic_shared[];
  return reinterpret_cast<T*>(mmcv_dynamic_shared);
}
}  // namespace gpu

#endif

namespace gpu {

// What a type is summed in.
template <typename T>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};

__device__ inline float to_float(float x) { return x; }
__device__ inline double to_float(double x) { return x; }
__device__ inline float to_float(Half x) { return __half2float(x); }
__device__ inline float to_float(BFloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T from_float(typename Accumulate<T>::type x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline double from_float<double>(double x) {
  return x;
}
template <>
__device__ inline Half from_float<Half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline BFloat16 from_float<BFloat16>(float x) {
  return __float2bfloat16(x);
}

// N neighbouring elements, loaded and stored in one instruction.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T element[N];
};

template <typename T, int N>
__device__ inline Vector<T, N> load(const T* __restrict__ pointer) {
  return *reinterpret_cast<const Vector<T, N>*>(pointer);
}

template <typename T, int N>
__device__ inline void store(T* pointer, const Vector<T, N>& vector) {
  *reinterpret_cast<Vector<T, N>*>(pointer) = vector;
}

// Sum over groups of `Lanes` neighbouring lanes (a power of two); every lane gets it. All lanes of
// the wave must take part.
template <int Lanes, typename T>
__device__ inline T group_sum(T value) {
  static_assert(Lanes <= 32, "a group must fit into the smallest wave");
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Hardware atomics without a result (HIP: -munsafe-fp-atomics).
__device__ inline void atomic_add(float* target, float value) { atomicAdd(target, value); }
__device__ inline void atomic_add(double* target, double value) { atomicAdd(target, value); }
// Two's complement: adding as unsigned is adding as signed.
__device__ inline void atomic_add(int64_t* target, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(value));
}

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x % kWaveSize); }

// Sum over the wave; every lane gets it. All lanes must take part.
template <typename T>
__device__ inline T wave_sum(T value) {
#pragma unroll
  for (int mask = kWaveSize / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

constexpr int kBlockSize = 256;
constexpr int kMinBlocks = 2;  // a multiprocessor holds at once: with more, large kernels spill
constexpr int64_t kMaxBlocks =
    1 << 20;  // kernels loop over what a grid of this size does not cover

inline unsigned blocks_for(int64_t threads) {
  const int64_t blocks = (threads + kBlockSize - 1) / kBlockSize;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

}  // namespace gpu
