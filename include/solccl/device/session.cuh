/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.cuh: channels and sessions.
 *
 * A channel is memory with slots for every sender; a session is one group's part
 * of it: session i of a channel joins the group that opened it on this rank with
 * the groups that open it on the others. A group is a thread, a warp, a CTA, a
 * cluster. What happens in a session goes in epochs:
 *
 *     open | send, push | receive, reduce | next | send ... | close
 *
 * In an epoch each rank may send each other one slot of bytes, in vectors of 16,
 * in any order, from any thread of the group; what one sent at byte `at` of its
 * slot, the others receive at byte `at`. Nobody waits to send.
 *
 * The rule that makes two buffers enough (gpu_epoch.h has the argument):
 *
 *   (R) In every epoch of a session the group receives something from every peer
 *       of the session's team before it ends the epoch: data, or a token from a
 *       peer that has no data for it. So it also sends every peer one or the other.
 *
 *   next    ends the epoch and begins another in the same kernel; all of the
 *           group call it.
 *   close   says that this epoch is the session's last in this kernel; all of the
 *           group call it, once nothing more will be sent. Receiving may follow.
 *           The end of the kernel is the end of the epoch.
 *
 * `kind` and `level` are constants, equal to those that the host asked for (the
 * emulator checks), so that after inlining nothing of the other kinds is left.
 */
#ifndef SOL_DEVICE_SESSION_CUH
#define SOL_DEVICE_SESSION_CUH

#include "solccl/device/reduce.cuh"
#include "solccl/device/team.cuh"
#include "solccl/device/word.cuh"

#define SOL_UNLIKELY(x) __builtin_expect((x) != 0, 0)

struct sol_session {
    uint64_t epoch;
    const char *epoch_at;
    char *out, *in; /* of two ranks: the peer's slot and own one, parity 0 */
    uint32_t parity_step;
    uint32_t base;  /* bytes from a slot of session 0, parity 0, to this session's */
    uint32_t shift; /* and to this epoch's */
    uint32_t index;
    int kind;
    enum sol_level level;
    struct sol_team team;
};

/* Two ranks, and known to be all? (A constant where the team's size is.) */
SOL_GPU_FN bool sol_session_pair(const struct sol_session &s)
{
    return s.team.whole && s.team.size == 2;
}

/* --- where things are ------------------------------------------------------------------------ */

/* The slot of this rank at member `peer`, and of member `peer` here. */
SOL_GPU_FN char *sol_session_out(const struct sol_channel &ch, const struct sol_session &s,
                                 int peer)
{
    int k = sol_team_member(s.team, peer) - ch.rank - 1;
    return ch.out[k < 0 ? k + ch.nranks : k] + s.shift;
}
SOL_GPU_FN char *sol_session_in(const struct sol_channel &ch, const struct sol_session &s, int peer)
{
    int source = sol_team_member(s.team, peer), first = ch.rank == 0;
    return ch.in + (int64_t)(source - first) * ch.source_step + s.shift;
}

/* From byte 0 of a source's slot to the escapes of the vector at byte `at`: half as many bytes, in
 * the same order, behind all slots of the parity. `base`: the session's. */
SOL_GPU_FN int64_t sol_session_escape(const struct sol_channel &ch, uint32_t base, int source,
                                      uint32_t at)
{
    return (int64_t)ch.nranks * ch.source_step - (int64_t)source * ch.source_step / 2 -
           (int64_t)base / 2 + at / 2;
}

/* Tokens lie before the slots: of each session, one from every rank. `staging`: slot 0. */
SOL_GPU_FN char *sol_session_token(const struct sol_channel &ch, const struct sol_session &s,
                                   char *slots, int sender)
{
    return slots - ch.token_step + ((uint64_t)s.index * ch.nranks + sender) * 8;
}

/* --- beginning and end ----------------------------------------------------------------------- */

#define SOL_TAG_PERIOD (1u << 30) /* epochs between two scrubbings */

/* A tag is 32 bits of the epoch: what 2^32 epochs ago left behind would be believed. So, long
 * before, every slot is filled with a tag that has been used up: in the first two epochs of a
 * period, by the group, before it sends anything; the slots of the epoch before are nobody's then.
 * In these and the next one sessions are fenced, so that no push meets a scrubbing. */
SOL_GPU_RARE void sol_session_scrub(const struct sol_channel &ch, uint64_t epoch, uint32_t base,
                                    enum sol_level level)
{
    const uint64_t before = epoch - 1, stale = (before & 0xffffffffu) << 32;
    const uint32_t shift = base + (before & 1 ? ch.parity_step : 0);
    const int sources = epoch % SOL_TAG_PERIOD < 2 ? ch.nranks : 0;
    struct sol_vector empty = {stale, stale};
    char *slots = ch.in - (int64_t)(ch.rank == 0) * ch.source_step + shift;
    sol_fence_system();
    sol_level_sync(level);
    for (int r = 0; r < sources; r++)
        for (uint32_t at = sol_level_thread(level) * 16; at < ch.slot_bytes;
             at += sol_level_threads(level) * 16)
            sol_push_vector(slots + (uint64_t)r * ch.source_step + at, empty);
    sol_fence_system();
    sol_level_sync(level);
    sol_fence_system();
}

SOL_GPU_FN void sol_session_begin(const struct sol_channel &ch, struct sol_session &s)
{
    s.shift = s.base + (s.epoch & 1 ? s.parity_step : 0);
    if (s.kind == SOL_CHANNEL_TAG &&
        SOL_UNLIKELY(s.epoch % SOL_TAG_PERIOD < 3 && s.epoch >= SOL_TAG_PERIOD))
        sol_session_scrub(ch, s.epoch, s.base, s.level);
}

/*
 * All threads of the group: take part in the next epoch of session `index`, with the ranks of
 * `team`: always the same for one session. In two steps: prepare works out addresses, and may be
 * called before sol_await_predecessors, which saves 0.1 us of a small operation; start reads the
 * epoch. One load; write it after those of the input, which then take no longer for it.
 */
SOL_GPU_FN struct sol_session sol_session_prepare(const struct sol_channel &ch, int kind,
                                                  unsigned index, enum sol_level level,
                                                  const struct sol_team &team)
{
    struct sol_session s;
    SOL_CHECK((uint32_t)kind == ch.kind, "the channel is of another kind");
    SOL_CHECK(index < ch.sessions, "the channel has fewer sessions");
    s.kind = kind;
    s.level = level;
    s.team = team;
    s.index = index;
    s.base = index * ch.slot_bytes;
    s.parity_step = sol_opaque(ch.parity_step);
    s.epoch_at = sol_opaque((const char *)&ch.epochs[index]);
    if (sol_session_pair(s)) {
        s.out = sol_opaque(ch.out[0] + s.base);
        s.in = sol_opaque(ch.in + s.base);
    }
    return s;
}

SOL_GPU_FN void sol_session_start(const struct sol_channel &ch, struct sol_session &s)
{
    s.epoch = sol_poll_word(s.epoch_at);
    sol_session_begin(ch, s);
}

/* Both. */
SOL_GPU_FN struct sol_session sol_session_open_team(const struct sol_channel &ch, int kind,
                                                    unsigned index, enum sol_level level,
                                                    const struct sol_team &team)
{
    struct sol_session s = sol_session_prepare(ch, kind, index, level, team);
    sol_session_start(ch, s);
    return s;
}
SOL_GPU_FN struct sol_session sol_session_open(const struct sol_channel &ch, int kind,
                                               unsigned index, enum sol_level level)
{
    return sol_session_open_team(ch, kind, index, level, sol_team_all(ch));
}

/* All threads of the group; see above. */
SOL_GPU_FN void sol_session_next(const struct sol_channel &ch, struct sol_session &s)
{
    if (s.kind == SOL_CHANNEL_WORD)
        sol_fence_system(); /* what this thread received comes before what any thread sends next */
    sol_level_sync(s.level);
    if (s.kind == SOL_CHANNEL_WORD)
        sol_fence_system(); /* every thread's resets come before this thread's next send */
    s.epoch++;
    sol_session_begin(ch, s);
}

SOL_GPU_FN void sol_session_close(const struct sol_channel &ch, const struct sol_session &s)
{
    sol_level_sync(s.level); /* all have read the epoch: addresses came from it */
    if (sol_level_thread(s.level) == 0)
        sol_push_word(&ch.epochs[s.index], s.epoch + 1);
}

/* --- sending --------------------------------------------------------------------------------- */

/* In TAG: half a vector as it goes over the link. */
SOL_GPU_FN struct sol_vector sol_tag_half(uint64_t data, uint64_t epoch)
{
    struct sol_vector v = {(uint32_t)data | epoch << 32, data >> 32 | epoch << 32};
    return v;
}

/* A vector of WORD that may need an escape. */
SOL_GPU_RARE void sol_session_send_escaped(const struct sol_channel &ch, char *out, uint64_t epoch,
                                           uint32_t base, uint32_t at, struct sol_vector v)
{
    struct sol_parcel parcel = sol_wrap_vector(v, epoch);
    if (parcel.escape != 0)
        sol_push_word(out + sol_session_escape(ch, base, ch.rank, at), parcel.escape);
    sol_push_vector(out + at, parcel.v);
}

SOL_GPU_FN void sol_session_check(const struct sol_channel &ch, const struct sol_session &s,
                                  uint32_t at)
{
    SOL_CHECK(at % 16 == 0, "a vector lies at a multiple of 16");
    SOL_CHECK((s.kind == SOL_CHANNEL_TAG ? 2 * at : at) < ch.slot_bytes, "beyond the slot");
    SOL_CHECK(s.kind != SOL_CHANNEL_LINE || (at & 127) == (threadIdx.x & 7) * 16,
              "LINE: thread i of eight has the vector at 16 i of a line");
    (void)ch, (void)s, (void)at;
}

/* To the slot at `out`. */
SOL_GPU_FN void sol_session_send_at(const struct sol_channel &ch, const struct sol_session &s,
                                    char *out, uint32_t at, struct sol_vector v)
{
    if (s.kind == SOL_CHANNEL_WORD) {
        if (SOL_UNLIKELY(sol_vector_suspect(v)))
            sol_session_send_escaped(ch, out, s.epoch, s.base, at, v);
        else
            sol_push_vector(out + at, v);
    } else if (s.kind == SOL_CHANNEL_TAG) {
        sol_push_vector(out + 2 * at, sol_tag_half(v.a, s.epoch));
        sol_push_vector(out + 2 * at + 16, sol_tag_half(v.b, s.epoch));
    } else if (s.kind == SOL_CHANNEL_LINE) {
        sol_push_line(out + at, v, s.epoch);
    } else {
        sol_store_16(out + at, v);
    }
}

/*
 * One thread sends 16 bytes at byte `at` of its slot to member `peer` of the team. LINE: eight
 * neighbouring threads of a warp together, `at` 16 apart, the first at a multiple of 128; of the
 * eighth's vector only the first word arrives. BULK: arrives with sol_session_flush.
 */
SOL_GPU_FN void sol_session_send(const struct sol_channel &ch, const struct sol_session &s,
                                 int peer, uint32_t at, struct sol_vector v)
{
    sol_session_check(ch, s, at);
    sol_session_send_at(ch, s, sol_session_out(ch, s, peer), at, v);
}

/* The same to every peer. */
SOL_GPU_FN void sol_session_push(const struct sol_channel &ch, const struct sol_session &s,
                                 uint32_t at, struct sol_vector v)
{
    sol_session_check(ch, s, at);
#pragma unroll
    for (int k = 1; k < SOL_DEV_MAX_RANKS; k++) {
        if (k >= s.team.size)
            break;
        int peer = s.team.rank + k;
        peer = peer < s.team.size ? peer : peer - s.team.size;
        char *out = sol_session_pair(s) ? s.out + (s.shift - s.base)
                    : s.team.whole      ? ch.out[k - 1] + s.shift
                                        : sol_session_out(ch, s, peer);
        sol_session_send_at(ch, s, out, at, v);
    }
}

/* A peer that gets no data gets a token: one thread of the group calls it. */
SOL_GPU_FN void sol_session_send_token(const struct sol_channel &ch, const struct sol_session &s,
                                       int peer)
{
    int to = sol_team_member(s.team, peer), k = to - ch.rank - 1;
    char *slots = ch.out[k < 0 ? k + ch.nranks : k] - (uint64_t)ch.rank * ch.source_step;
    sol_push_word(sol_session_token(ch, s, slots, ch.rank), s.epoch);
}

/* BULK, all threads of the group: everything that the group sent in this epoch arrives. */
SOL_GPU_FN void sol_session_flush(const struct sol_channel &ch, const struct sol_session &s)
{
    if (s.kind != SOL_CHANNEL_BULK)
        return;
    sol_level_sync(s.level);
    unsigned threads = sol_level_threads(s.level);
    for (int peer = (int)sol_level_thread(s.level); peer < s.team.size; peer += (int)threads)
        if (peer != s.team.rank) {
            sol_fence_system(); /* the group's stores, which the barrier put before this */
            sol_session_send_token(ch, s, peer);
        }
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Every so many polls in vain: see watch.cuh. */
SOL_GPU_RARE uint64_t sol_session_late(const struct sol_channel &ch, uint64_t epoch, uint32_t index,
                                       uint64_t deadline, uint32_t look, int source)
{
    struct sol_story story = {epoch, index, SOL_GPU_WHO_SESSION};
    return sol_watch_look(ch.bound, story, deadline, look, source);
}
SOL_GPU_FN bool sol_session_expired(const struct sol_channel &ch, const struct sol_session &s,
                                    struct sol_watch &watch, int source)
{
    if ((++watch.polls & (SOL_WATCH_POLLS - 1)) != 0)
        return false;
    watch.deadline = sol_session_late(ch, s.epoch, s.index, watch.deadline,
                                      watch.polls / SOL_WATCH_POLLS, source);
    return s.kind == SOL_CHANNEL_LINE ? sol_line_any(watch.deadline == 0) : watch.deadline == 0;
}

/* A vector of WORD that has come and looks suspicious: as it was meant. `failed`: gave up waiting
 * for its escape word. `in`: its source's slot. */
struct sol_settled {
    struct sol_vector v;
    uint32_t failed;
};
SOL_GPU_RARE struct sol_settled sol_session_settle(const struct sol_channel &ch, const char *in,
                                                   uint64_t epoch, uint32_t index, int source,
                                                   uint32_t at, struct sol_vector v)
{
    const char *escape = in + sol_session_escape(ch, index * ch.slot_bytes, source, at);
    struct sol_story story = {epoch, index, SOL_GPU_WHO_SESSION};
    struct sol_settled r = {v, 0};
    r.failed = !sol_unescape(ch.bound, story, r.v, escape, epoch, source);
    return r;
}

/* One look at the slot `in`. 0: not there yet, 1: in `v`, 2: gave up. */
SOL_GPU_FN uint32_t sol_session_look(const struct sol_channel &ch, const struct sol_session &s,
                                     const char *in, int source, uint32_t at, struct sol_vector &v)
{
    if (s.kind == SOL_CHANNEL_WORD) {
        v = sol_poll_vector(in + at);
        if (!SOL_UNLIKELY(sol_vector_suspect(v)))
            return 1;
        if (sol_vector_missing(v))
            return 0;
        struct sol_settled r = sol_session_settle(ch, in, s.epoch, s.index, source, at, v);
        v = r.v;
        return r.failed ? 2 : 1;
    }
    if (s.kind == SOL_CHANNEL_TAG) {
        struct sol_vector x = sol_poll_vector(in + 2 * at), y = sol_poll_vector(in + 2 * at + 16);
        const uint32_t tag = (uint32_t)s.epoch;
        v.a = (uint32_t)x.a | x.b << 32;
        v.b = (uint32_t)y.a | y.b << 32;
        return x.a >> 32 == tag && x.b >> 32 == tag && y.a >> 32 == tag && y.b >> 32 == tag;
    }
    if (s.kind == SOL_CHANNEL_LINE)
        return sol_poll_line(in + at, s.epoch, v);
    v = sol_load_16(in + at);
    return 1;
}

/* The slot is as it was before, where that is needed. */
SOL_GPU_FN void sol_session_emptied(const struct sol_session &s, char *in, uint32_t at)
{
    if (s.kind == SOL_CHANNEL_WORD)
        sol_reset_vector(in + at);
}

/* WORD: the loop that waits is short, and what follows it in the code is what is done when all has
 * come and nothing is special. False: gave up. */
SOL_GPU_FN bool sol_session_await_word(const struct sol_channel &ch, const struct sol_session &s,
                                       const char *in, int source, uint32_t at,
                                       struct sol_vector &v)
{
    uint64_t deadline = 0;
    for (uint32_t look = 1;; look++) {
        uint32_t polls = SOL_WATCH_POLLS;
        bool missing;
        do {
            v = sol_poll_vector(in + at);
            missing = sol_vector_missing(v);
        } while (missing && --polls != 0);
        if (!SOL_UNLIKELY(sol_vector_suspect(v)))
            return true;
        if (!missing)
            break;
        deadline = sol_session_late(ch, s.epoch, s.index, deadline, look, source);
        if (deadline == 0)
            return false;
    }
    struct sol_settled r = sol_session_settle(ch, in, s.epoch, s.index, source, at, v);
    v = r.v;
    return !r.failed;
}

/*
 * One thread (LINE: eight) receives 16 bytes that member `peer` sent at byte `at`. False: gave up.
 * Each vector is received once, by one thread. BULK: after sol_session_await.
 */
SOL_GPU_FN bool sol_session_receive(const struct sol_channel &ch, const struct sol_session &s,
                                    int peer, uint32_t at, struct sol_vector &v)
{
    const int source = sol_team_member(s.team, peer);
    /* (of two ranks, the other is always the 0-th source) */
    char *in = sol_session_pair(s) ? s.in + (s.shift - s.base) : sol_session_in(ch, s, peer);
    if (s.kind == SOL_CHANNEL_WORD) {
        if (!sol_session_await_word(ch, s, in, source, at, v))
            return false;
    } else {
        struct sol_watch watch = {0, 0};
        while (sol_session_look(ch, s, in, source, at, v) == 0)
            if (sol_session_expired(ch, s, watch, source))
                return false;
    }
    sol_session_emptied(s, in, at);
    return true;
}

/* The same from every peer, all loads of a try in flight at once. in[i] is member i's, for the
 * first N members; in[own rank] is left alone. False: gave up. */
template <int N>
SOL_GPU_FN bool sol_session_receive_all(const struct sol_channel &ch, const struct sol_session &s,
                                        uint32_t at, struct sol_vector (&in)[N])
{
    struct sol_watch watch = {0, 0};
    uint32_t missing;
    int awaited = 0;
    do {
        missing = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            struct sol_vector v;
            if (i >= s.team.size || i == s.team.rank)
                continue;
            const int source = sol_team_member(s.team, i);
            uint32_t state = sol_session_look(ch, s, sol_session_in(ch, s, i), source, at, v);
            if (state == 2)
                return false;
            awaited = state == 0 ? source : awaited;
            missing |= state == 0;
            in[i] = v;
        }
        if (missing && sol_session_expired(ch, s, watch, awaited))
            return false;
    } while (missing);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < s.team.size && i != s.team.rank)
            sol_session_emptied(s, sol_session_in(ch, s, i), at);
    return true;
}

/*
 * Receive from every peer and reduce in the team's order, with `v`, this rank's own, in its place:
 * solccl.h's result, the same bits on every rank. D: a sol_dtype_t; op: SOL_SUM ... SOL_AVG, a
 * constant if it can be; N: the most members. False: gave up.
 */
template <int D, int N = SOL_DEV_MAX_RANKS>
SOL_GPU_FN bool sol_session_reduce(const struct sol_channel &ch, const struct sol_session &s,
                                   int op, uint32_t at, struct sol_vector &v)
{
    struct sol_vector in[N];
    if (N == 2) { /* every operation commutes, bit for bit */
        if (!sol_session_receive(ch, s, 1 - s.team.rank, at, in[0]))
            return false;
        v = sol_reduce_pair<D>(op, v, in[0]);
        return true;
    }
    if (!sol_session_receive_all<N>(ch, s, at, in))
        return false;
    struct sol_lanes<D> acc = sol_unpack<D>(s.team.rank == 0 ? v : in[0]);
#pragma unroll
    for (int i = 1; i < N; i++)
        if (i < s.team.size)
            sol_combine<D>(op, acc, sol_unpack<D>(i == s.team.rank ? v : in[i]));
    v = sol_finish<D>(op, acc, s.team.size);
    return true;
}

/* One thread: has member `peer` sent its token (BULK: its flag) of this epoch? False: gave up. */
SOL_GPU_FN bool sol_session_await_token(const struct sol_channel &ch, const struct sol_session &s,
                                        int peer)
{
    const int source = sol_team_member(s.team, peer);
    char *slots = ch.in - (int64_t)(ch.rank == 0) * ch.source_step;
    const char *token = sol_session_token(ch, s, slots, source);
    struct sol_watch watch = {0, 0};
    while ((int64_t)(sol_poll_word_acquire(token) - s.epoch) < 0)
        if (sol_session_expired(ch, s, watch, source))
            return false;
    return true;
}

/* BULK, all threads of the group: wait until what every peer sent in this epoch can be received.
 * False, to all of them: gave up. */
SOL_GPU_FN bool sol_session_await(const struct sol_channel &ch, const struct sol_session &s)
{
    if (s.kind != SOL_CHANNEL_BULK)
        return true;
    bool failed = false;
    unsigned threads = sol_level_threads(s.level);
    for (int peer = (int)sol_level_thread(s.level); peer < s.team.size; peer += (int)threads)
        if (peer != s.team.rank)
            failed |= !sol_session_await_token(ch, s, peer);
    return !sol_level_any(s.level, failed);
}

/* LINE: where in a message the vector at byte `at` of the slot lies: a line carries 120 bytes. */
SOL_GPU_FN uint32_t sol_line_offset(uint32_t at)
{
    return at / 128 * 120 + (at & 127);
}

#endif
