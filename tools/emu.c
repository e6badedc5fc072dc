/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu.c: `solccl emu`: compile a program of kernels for the emulator and run it,
 * as so many ranks, with so many seeds. The emulator's library, headers and
 * compiler flags lie in lib/solccl/emu beside the command's own folder.
 *
 * Must never: need CUDA; leave files behind.
 */
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 512

static const char usage[] =
    "Usage: solccl emu [options] FILE.cu... [-- ARGUMENT...]\n"
    "\n"
    "Compile kernels and their main() for the emulator, with no CUDA on the machine, and run\n"
    "main() once for every rank. An error names the line; the seed that it prints repeats it.\n"
    "\n"
    "  -n, --ranks N   ranks, 1 to 8 (2)\n"
    "  --seed S        of the first run (drawn from the clock)\n"
    "  --seeds K       so many runs (10)\n"
    "  --devices D     emulated GPUs; rank r is on r mod D (N)\n"
    "  --time-passes   waits that nobody will end time out, and are no errors by themselves\n"
    "  -o PROGRAM      keep the program, do not run it: PROGRAM --help says how\n"
    "  -D, -I, -O, -W, -std, -f...   for the compiler ($CXX, or c++)\n"
    "  ARGUMENT...     for main()\n"
    "  -h, --help\n"
    "\n"
    "Kernels are launched by sol_dev_launch (solccl/device.h), not by <<<>>>; main() ends with a\n"
    "return. Status: 0 if all runs were well, 1 if one was not, the compiler's if it refused.\n";

struct words {
    char *word[WORDS];
    int count;
};

static void add(struct words *w, const char *format, const char *argument)
{
    size_t bytes = strlen(format) + strlen(argument) + 1;
    char *text = w->count < WORDS - 1 ? tool_calloc(1, bytes) : NULL;
    if (text != NULL) {
        snprintf(text, bytes, format, argument);
        w->word[w->count++] = text;
        w->word[w->count] = NULL;
    }
}

static void drop(struct words *w)
{
    for (int i = 0; i < w->count; i++) {
        tool_free(w->word[i]);
    }
    w->count = 0;
}

/* lib/solccl/emu of this command. */
static int find_emulator(char *dir, size_t bytes)
{
    static const char *const libs[] = {"lib", "lib64", "lib/x86_64-linux-gnu",
                                       "lib/aarch64-linux-gnu"};
    char exe[1024], path[4096];
    struct stat st;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    const char *set = getenv("SOLCCL_EMU_DIR");
    if (set != NULL) {
        snprintf(dir, bytes, "%s", set);
        return 0;
    }
    exe[n > 0 ? n : 0] = '\0';
    for (int up = 0; up < 2; up++) { /* bin/solccl -> . */
        char *slash = strrchr(exe, '/');
        if (slash == NULL) {
            return -1;
        }
        *slash = '\0';
    }
    for (size_t i = 0; i < sizeof libs / sizeof *libs; i++) {
        snprintf(dir, bytes, "%s/%s/solccl/emu", exe, libs[i]);
        snprintf(path, sizeof path, "%s/flags", dir);
        if (stat(path, &st) == 0) {
            return 0;
        }
    }
    return -1;
}

/* Does the compiler call itself clang? */
static int is_clang(const char *compiler)
{
    char command[512], line[256] = "";
    snprintf(command, sizeof command, "%s --version 2>/dev/null", compiler);
    FILE *f = popen(command, "re");
    if (f == NULL) {
        return 0;
    }
    while (strstr(line, "clang") == NULL && fgets(line, sizeof line, f) != NULL) {
    }
    pclose(f);
    return strstr(line, "clang") != NULL;
}

static int add_flags(struct words *w, const char *dir, int clang)
{
    char path[4096], line[4096], full[8192];
    snprintf(path, sizeof path, "%s/flags", dir);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return -1;
    }
    while (fgets(line, sizeof line, f) != NULL) {
        char *flag = line, *at;
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(flag, "gcc:", 4) == 0 || strncmp(flag, "clang:", 6) == 0) {
            if ((flag[0] == 'c') != clang) {
                continue;
            }
            flag = strchr(flag, ':') + 1;
        }
        at = strstr(flag, "@DIR@");
        if (at != NULL) {
            *at = '\0';
            snprintf(full, sizeof full, "%s%s%s", flag, dir, at + 5);
            flag = full;
        }
        if (*flag != '\0') {
            add(w, "%s", flag);
        }
    }
    fclose(f);
    return 0;
}

/* Its exit status; 128 and the signal. */
static int execute(char *const *argv)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        fprintf(stderr, "solccl emu: %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return 127;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct plan {
    struct words compile, files, run;
    const char *out;
    int seeds;
    char **own; /* "--" and what follows */
    int owns;
};

/* NULL, or what is wrong. */
static const char *read_options(struct plan *p, int argc, char **argv)
{
    static const char *const valued[] = {"--ranks", "--seed", "--seeds", "--devices"};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--") == 0) {
            p->own = argv + i;
            p->owns = argc - i;
            break;
        }
        const char *name = strcmp(a, "-n") == 0 ? "--ranks" : a;
        int takes = 0;
        for (size_t k = 0; k < sizeof valued / sizeof *valued; k++) {
            takes |= strcmp(name, valued[k]) == 0;
        }
        if ((takes || strcmp(a, "-o") == 0) && i + 1 == argc) {
            return "an option lacks its value";
        }
        if (takes) {
            p->seeds |= strcmp(name, "--seeds") == 0 || strcmp(name, "--seed") == 0;
            add(&p->run, "%s", name);
            add(&p->run, "%s", argv[++i]);
        } else if (strcmp(a, "-o") == 0) {
            p->out = argv[++i];
        } else if (strcmp(a, "--time-passes") == 0) {
            add(&p->run, "%s", a);
        } else if (a[0] == '-' && strchr("DIOWsfgw", a[1]) != NULL && a[1] != '\0') {
            add(&p->compile, "%s", a);
        } else if (a[0] == '-') {
            return "an option is not known";
        } else {
            add(&p->files, "%s", a);
        }
    }
    if (!p->seeds) {
        add(&p->run, "%s", "--seeds");
        add(&p->run, "%s", "10");
    }
    for (int i = 0; i < p->owns; i++) {
        add(&p->run, "%s", p->own[i]);
    }
    return p->files.count ? NULL : "no file to compile";
}

/* Each file to an object of `folder`, and these to `program`. An exit status. */
static int build(const struct plan *p, const char *dir, const char *folder, const char *program)
{
    struct words link = {{NULL}, 0};
    char object[4096];
    const char *compiler = getenv("CXX");
    compiler = compiler != NULL ? compiler : "c++";
    int clang = is_clang(compiler), code = 0;
    add(&link, "%s", compiler);
    for (int f = 0; f < p->files.count && code == 0; f++) {
        struct words compile = {{NULL}, 0};
        add(&compile, "%s", compiler);
        for (int i = 0; i < p->compile.count; i++) { /* the caller's folders before ours ... */
            if (strncmp(p->compile.word[i], "-I", 2) == 0) {
                add(&compile, "%s", p->compile.word[i]);
            }
        }
        if (add_flags(&compile, dir, clang) != 0) {
            return tool_error("emu", "%s/flags cannot be read", dir);
        }
        for (int i = 0; i < p->compile.count;
             i++) { /* ... and the caller's flags have the last word */
            if (strncmp(p->compile.word[i], "-I", 2) != 0) {
                add(&compile, "%s", p->compile.word[i]);
            }
        }
        snprintf(object, sizeof object, "-o%s/%d.o", folder, f);
        add(&compile, "-x%s", "c++");
        add(&compile, "%s", "-c");
        add(&compile, "%s", p->files.word[f]);
        add(&compile, "%s", object);
        add(&link, "%s", object + 2);
        code = execute(compile.word);
        drop(&compile);
    }
    add(&link, "%s/libsolccl-emu.a", dir);
    add(&link, "-l%s", "pthread");
    add(&link, "-l%s", "m");
    add(&link, "-o%s", program);
    code = code == 0 ? execute(link.word) : code;
    for (int f = 1; f <= p->files.count && f < link.count; f++) {
        unlink(link.word[f]);
    }
    drop(&link);
    return code;
}

int tool_emu(int argc, char **argv)
{
    static struct plan p;
    char dir[3000], folder[] = "/tmp/solccl-emu-XXXXXX", program[4096];
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    add(&p.run, "%s", "program");
    const char *what = read_options(&p, argc, argv);
    if (what != NULL) {
        return tool_usage("emu", "%s", what);
    }
    if (find_emulator(dir, sizeof dir) != 0) {
        return tool_error("emu", "lib/solccl/emu is not beside this command; SOLCCL_EMU_DIR names "
                                 "the folder with libsolccl-emu.a");
    }
    if (mkdtemp(folder) == NULL) {
        return tool_error("emu", "/tmp: %s", strerror(errno));
    }
    snprintf(program, sizeof program, "%s/program", folder);
    int code = build(&p, dir, folder, p.out != NULL ? p.out : program);
    if (code == 0 && p.out == NULL) {
        tool_free(p.run.word[0]);
        p.run.word[0] = program;
        code = execute(p.run.word);
        p.run.word[0] = NULL;
    }
    unlink(program);
    rmdir(folder);
    drop(&p.compile);
    drop(&p.files);
    drop(&p.run);
    return code;
}
