// HSTU attention over rows of different lengths on a CPU: no padding, and no products that a mask would undo.
//
// The text becomes part of the kernels that inductor generates for a package, which have ATen's vector types
// and nothing else of torch. Scores are made for a strip of a few queries and a block of keys at a time: they
// stay in the innermost cache. A row's keys are transposed and its values copied once per head, to numbers of
// 32 bits that follow each other.
#ifndef SLIPWAY_JAGGED_ATTENTION
#define SLIPWAY_JAGGED_ATTENTION

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace slipway {

using Vec = at::vec::Vectorized<float>;
constexpr int64_t kLanes = Vec::size();
constexpr int64_t kPanel = kLanes >= 16 ? 4 : 2;  // vectors side by side in registers
constexpr int64_t kStrip = 6;                     // queries at a time
constexpr int64_t kBlock = 256;                   // keys at a time
constexpr int64_t kWorthThreads = 1 << 20;        // products, below which one thread is faster

inline int64_t round_up(int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

struct Attention {
  int64_t heads, attention_dim, hidden_dim;
  float alpha, divisor;
  int64_t prefix, window, sla_k1, sla_k2;
  bool has_candidates;
};

// Elements [begin, end) and [begin2, end2) of a row that one element sees; the second interval is behind the
// first, and either may be empty.
struct Seen {
  int64_t begin, end, begin2, end2;
};

inline Seen merged(int64_t begin, int64_t end, int64_t begin2, int64_t end2) {
  if (begin >= end) {
    return {begin2, begin2, begin2, std::max(begin2, end2)};
  }
  if (begin2 >= end2) {
    return {begin, end, end, end};
  }
  if (begin2 < begin) {
    std::swap(begin, begin2);
    std::swap(end, end2);
  }
  return begin2 <= end ? Seen{begin, std::max(end, end2), std::max(end, end2), std::max(end, end2)}
                       : Seen{begin, end, begin2, end2};
}

// The rule of exporter.models.hstu.attention.Visibility, for the element at `place` of a row.
inline Seen seen_by(const Attention& form, int64_t place, int64_t length, int64_t candidates) {
  const int64_t history = length - candidates;
  if (form.sla_k1 > 0 || form.sla_k2 > 0) {
    if (form.has_candidates && place >= history) {
      return merged(0, std::max<int64_t>(history, 0), 0, 0);
    }
    const int64_t first = std::min(place + 1, std::max(form.sla_k2, form.prefix));
    return merged(0, first, std::max<int64_t>(place - form.sla_k1 + 1, 0), place + 1);
  }
  // The whole prefix is at position 0, and all candidates are at one position behind the history.
  const int64_t shift = form.prefix > 0 ? form.prefix - 1 : 0;
  const int64_t last = history - shift;
  const int64_t position = std::min(std::max<int64_t>(place - shift, 0), last);
  // Elements at lower positions are those before the first element at this position.
  int64_t begin = 0, end = position <= 0 ? 0 : std::min(position + shift, length);
  if (form.window > 0 && position - form.window > 0) {
    begin = std::min(position - form.window + shift, end);
  }
  if (form.prefix > 0 && position == 0) {
    begin = 0;
    end = last > 0 ? std::min(last + shift, length) : 0;
  }
  return merged(begin, end, place, place + 1);
}

// out (M, 16 * N), rows `out_step` apart = or += a (M, K) b (K, 16 * N)
template <int64_t M, int64_t N>
inline void multiply(
    const float* a, int64_t a_step, const float* b, int64_t b_step, float* out, int64_t out_step,
    int64_t inner, bool add) {
  Vec sums[M][N];
#pragma GCC unroll 8
  for (int64_t m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int64_t n = 0; n < N; ++n) {
      sums[m][n] = add ? Vec::loadu(out + m * out_step + n * kLanes) : Vec(0.0f);
    }
  }
  for (int64_t k = 0; k < inner; ++k) {
    Vec row[N];
#pragma GCC unroll 4
    for (int64_t n = 0; n < N; ++n) {
      row[n] = Vec::loadu(b + k * b_step + n * kLanes);
    }
#pragma GCC unroll 8
    for (int64_t m = 0; m < M; ++m) {
      const Vec each(a[m * a_step + k]);
#pragma GCC unroll 4
      for (int64_t n = 0; n < N; ++n) {
        sums[m][n] = at::vec::fmadd(each, row[n], sums[m][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int64_t n = 0; n < N; ++n) {
      sums[m][n].store(out + m * out_step + n * kLanes);
    }
  }
}

template <int64_t M>
inline void multiply_columns(
    const float* a, int64_t a_step, const float* b, int64_t b_step, float* out, int64_t out_step,
    int64_t inner, int64_t columns, bool add) {
  int64_t n = 0;
  for (; n + kPanel * kLanes <= columns; n += kPanel * kLanes) {
    multiply<M, kPanel>(a, a_step, b + n, b_step, out + n, out_step, inner, add);
  }
  for (; n + 2 * kLanes <= columns; n += 2 * kLanes) {
    multiply<M, 2>(a, a_step, b + n, b_step, out + n, out_step, inner, add);
  }
  if (n < columns) {
    multiply<M, 1>(a, a_step, b + n, b_step, out + n, out_step, inner, add);
  }
}

// Product of up to kStrip rows; `columns` is a multiple of kLanes.
inline void multiply_strip(
    int64_t rows, const float* a, int64_t a_step, const float* b, int64_t b_step, float* out,
    int64_t out_step, int64_t inner, int64_t columns, bool add) {
  if (rows == kStrip) {
    multiply_columns<kStrip>(a, a_step, b, b_step, out, out_step, inner, columns, add);
    return;
  }
  int64_t m = 0;
  for (; m + 3 <= rows; m += 3) {
    multiply_columns<3>(a + m * a_step, a_step, b, b_step, out + m * out_step, out_step, inner, columns, add);
  }
  for (; m < rows; ++m) {
    multiply_columns<1>(a + m * a_step, a_step, b, b_step, out + m * out_step, out_step, inner, columns, add);
  }
}

// Replace one query's scores of the keys [from, to) by their weights, and those that it does not see by 0.
inline void weigh(float* scores, int64_t from, int64_t to, const Seen& seen) {
  const Vec one(1.0f);
  for (int64_t n = from; n < to; n += kLanes) {
    const Vec score = Vec::loadu(scores + n - from);
    (score / (one + score.neg().exp_u20())).store(scores + n - from);
  }
  const auto clear = [&](int64_t begin, int64_t end) {
    begin = std::max(begin, from);
    end = std::min(end, to);
    if (begin < end) {
      std::fill(scores + begin - from, scores + end - from, 0.0f);
    }
  };
  clear(from, seen.begin);
  clear(seen.end, seen.begin2);
  clear(seen.end2, to);
}

// Memory of one thread. Each part starts at a cache line: a vector would lie in two otherwise.
struct Scratch {
  static constexpr int64_t kLine = 64 / sizeof(float);
  int64_t block_step;  // from a number of a key to its next one; no power of two, which would share cache sets
  std::unique_ptr<float[]> memory;
  float *keys, *values, *queries, *scores, *sums, *staged;

  Scratch(const Attention& form, int64_t longest)
      : block_step(round_up(std::min(kBlock, longest)) + kLine) {
    const int64_t blocks = (longest + kBlock - 1) / kBlock, width = round_up(form.hidden_dim);
    const int64_t sizes[] = {
        blocks * form.attention_dim * block_step, longest * width, kStrip * form.attention_dim,
        kStrip * kBlock, kStrip * width, kLanes * form.attention_dim};
    float** const parts[] = {&keys, &values, &queries, &scores, &sums, &staged};
    int64_t total = kLine;
    for (const int64_t size : sizes) {
      total += (size + kLine - 1) / kLine * kLine;
    }
    memory.reset(new float[total]);
    float* next = memory.get() + (kLine - reinterpret_cast<uintptr_t>(memory.get()) / sizeof(float) % kLine);
    for (int64_t part = 0; part < 6; ++part) {
      *parts[part] = next;
      next += (sizes[part] + kLine - 1) / kLine * kLine;
    }
  }
};

// out = from * factor, for `count` numbers. Inductor lets the compiler vectorise no loops.
template <typename from_t, typename to_t>
inline void scale(const from_t* from, float factor, to_t* out, int64_t count) {
  int64_t n = 0;
  if constexpr (std::is_same_v<from_t, float> && std::is_same_v<to_t, float>) {
    for (; n + kLanes <= count; n += kLanes) {
      (Vec::loadu(from + n) * Vec(factor)).store(out + n);
    }
  }
  for (; n < count; ++n) {
    out[n] = static_cast<to_t>(static_cast<float>(from[n]) * factor);
  }
}

// Copy `count` keys of `width` numbers to columns of `out`, whose further columns up to a whole vector are 0.
template <typename scalar_t>
inline void transpose(
    const scalar_t* keys, int64_t key_step, int64_t count, int64_t width, float* out, int64_t out_step,
    float* staged) {
  for (int64_t n = 0; n < count; n += kLanes) {
    const float* from = staged;
    int64_t step = width, a = 0;
    const bool whole = n + kLanes <= count;
    if constexpr (std::is_same_v<scalar_t, float>) {
      if (whole) {
        from = keys + n * key_step;
        step = key_step;
      }
    }
    if (from == staged) {
      for (int64_t each = 0; each < kLanes; ++each) {
        for (a = 0; a < width; ++a) {
          staged[each * width + a] =
              n + each < count ? static_cast<float>(keys[(n + each) * key_step + a]) : 0.0f;
        }
      }
    }
    for (a = 0; a + kLanes <= width; a += kLanes) {
      at::vec::transpose_mxn<float, kLanes, kLanes>(from + a, step, out + a * out_step + n, out_step);
    }
    for (; a < width; ++a) {
      for (int64_t each = 0; each < kLanes; ++each) {
        out[a * out_step + n + each] = from[each * step + a];
      }
    }
  }
}

// One head of one row. Its queries are those of the row's last elements, of all if there are as many.
template <typename scalar_t>
inline void attend_row(
    const Attention& form, const scalar_t* q, int64_t q_step, const scalar_t* k, int64_t k_step,
    const scalar_t* v, int64_t v_step, scalar_t* out, int64_t out_step, int64_t length, int64_t queries,
    int64_t candidates, Scratch& scratch) {
  const int64_t A = form.attention_dim, V = form.hidden_dim, padded = round_up(V);
  const int64_t step = scratch.block_step;
  float *const values = scratch.values, *const sums = scratch.sums, *const scores = scratch.scores;
  for (int64_t first = 0; first < length; first += kBlock) {
    transpose(
        k + first * k_step, k_step, std::min(kBlock, length - first), A,
        scratch.keys + first / kBlock * A * step, step, scratch.staged);
  }
  for (int64_t n = 0; n < length; ++n) {
    scale(v + n * v_step, 1.0f, values + n * padded, V);
    std::fill(values + n * padded + V, values + (n + 1) * padded, 0.0f);
  }
  for (int64_t start = 0; start < queries; start += kStrip) {
    const int64_t rows = std::min(kStrip, queries - start);
    float* const strip = scratch.queries;
    Seen seen[kStrip];
    int64_t lowest = length, highest = 0;
    for (int64_t m = 0; m < rows; ++m) {
      const int64_t place = length - queries + start + m;
      seen[m] = place < 0 ? Seen{0, 0, 0, 0} : seen_by(form, place, length, candidates);
      lowest = std::min(lowest, seen[m].begin);
      highest = std::max(highest, seen[m].end2);
      scale(q + (start + m) * q_step, form.alpha, strip + m * A, A);
    }
    std::fill(sums, sums + rows * padded, 0.0f);
    for (int64_t first = lowest / kBlock * kBlock; first < highest; first += kBlock) {
      const int64_t from = std::max(first, lowest / kLanes * kLanes);
      const int64_t to = std::min(first + kBlock, highest), columns = round_up(to - from);
      multiply_strip(
          rows, strip, A, scratch.keys + first / kBlock * A * step + (from - first), step, scores, kBlock, A,
          columns, false);
      for (int64_t m = 0; m < rows; ++m) {
        weigh(scores + m * kBlock, from, from + columns, seen[m]);
      }
      multiply_strip(
          rows, scores, kBlock, values + from * padded, padded, sums, padded, to - from, padded, true);
    }
    for (int64_t m = 0; m < rows; ++m) {
      scale(sums + m * padded, 1.0f / form.divisor, out + (start + m) * out_step, V);
    }
  }
}

// Row b is the elements from offsets[b] to offsets[b + 1]; it has the queries from asking[b] to asking[b + 1].
// Offsets that do not fit the tensors are cut, so that no memory outside is read.
template <typename scalar_t, typename offset_t, typename asking_t, typename count_t>
inline void attend(
    const Attention& form, const scalar_t* q, int64_t q_step, const scalar_t* k, int64_t k_step,
    const scalar_t* v, int64_t v_step, const offset_t* offsets, const asking_t* asking,
    const count_t* candidates, int64_t rows, int64_t elements, int64_t queries, scalar_t* out) {
  const auto within = [](int64_t offset, int64_t end) { return std::min(std::max<int64_t>(offset, 0), end); };
  const int64_t width = form.heads * form.hidden_dim;
  int64_t longest = 0, products = 0;
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t length = within(offsets[b + 1], elements) - within(offsets[b], elements);
    longest = std::max(longest, length);
    products += length * (within(asking[b + 1], queries) - within(asking[b], queries));
  }
  products *= form.heads * (form.attention_dim + form.hidden_dim);
#pragma omp parallel if (products > kWorthThreads)
  {
    Scratch scratch(form, longest);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < rows * form.heads; ++task) {
      const int64_t b = task / form.heads, h = task % form.heads;
      const int64_t first = within(offsets[b], elements), query = within(asking[b], queries);
      const int64_t length = std::max<int64_t>(within(offsets[b + 1], elements) - first, 0);
      const int64_t count = std::max<int64_t>(within(asking[b + 1], queries) - query, 0);
      attend_row(
          form, q + query * q_step + h * form.attention_dim, q_step,
          k + first * k_step + h * form.attention_dim, k_step, v + first * v_step + h * form.hidden_dim,
          v_step, out + query * width + h * form.hidden_dim, width, length, count,
          form.has_candidates ? within(candidates[b], length) : 0, scratch);
    }
  }
}

}  // namespace slipway

#endif
