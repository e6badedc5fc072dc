/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_wire.h: how perf talks to the ranks it measures, ours and the peers'.
 *
 * Each rank is a worker: it connects to the driver's socket (abstract Unix
 * namespace, a random name handed down in SOLCCL_PERF_SOCKET), says hello, and
 * from then on sleeps in recv() until a command comes; it answers each with one
 * message. So the side that is not being measured costs no CPU time: no thread
 * of it spins or polls.
 *
 * A message is one packet (SOCK_SEQPACKET): a line of text and its 0 byte,
 * optionally followed by binary samples. The user on the other end is checked
 * (SO_PEERCRED). Every wait of the driver has a deadline; a worker waits until
 * the driver speaks or is gone.
 *
 * Worker: hello LIBRARY RANK SIZE PID CPU VERSION...
 * Driver                                   Worker's answer ("error TEXT" is always possible)
 *   bind CPU                               ok
 *   setup CHECKS CASE                      ok WRONG PROTOCOL... | unsupported WHY
 *   time SAMPLES WARM BATCH ALONE          ok + one double (ns) per sample
 *   clear                                  ok            free the buffers
 *   map RANKS BYTES  (with a descriptor)   ok            memory shared by all workers, for probes
 *   latency ROLE SLOT ROUNDS CPU           ok NS         ping-pong: one way
 *   move KIND BYTES SOURCE SLOTS CPU REPS  ok NS         bandwidth: the best repetition
 *   quit                                   none
 */
#ifndef SOL_TOOLS_PERF_WIRE_H
#define SOL_TOOLS_PERF_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERF_SOCKET_VARIABLE "SOLCCL_PERF_SOCKET"
#define PERF_LINE 1024
#define PERF_MAX_SAMPLES 4096

/** Driver: open the socket; the name is random. -1 if refused (errno). */
int perf_wire_listen(char *name, size_t bytes);
/** Driver: the next worker, or -1 when none has come by `deadline_ns` or another user tried. */
int perf_wire_accept(int listener, uint64_t deadline_ns);
/** Worker: connect; -1 if refused (errno). */
int perf_wire_connect(const char *name);

/** Send a line, with `count` doubles behind it and a descriptor beside it (-1: none). */
bool perf_wire_send(int fd, const char *line, const double *samples, size_t count, int pass);

/** What one receive may give. */
typedef struct perf_message {
    char line[PERF_LINE];
    size_t count; /**< samples that came */
    double samples[PERF_MAX_SAMPLES];
    int pass; /**< a descriptor, now the caller's to close, or -1 */
} perf_message_t;

/** Receive one message before `deadline_ns` (0: wait until the other end is gone). False when the
 * other end is gone (errno 0), time is up (errno ETIMEDOUT) or the message is malformed. */
bool perf_wire_receive(int fd, perf_message_t *message, uint64_t deadline_ns);

#endif
