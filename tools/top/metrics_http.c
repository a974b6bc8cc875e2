/* metrics_http.c: serves metrics by libmicrohttpd: see metrics.h. It is loaded when a port is asked
 * for: it brings seven libraries along, for which no other command shall wait. */
#include "tools/top/metrics.h"

#include "tools/base/complain.h"

#ifdef HAVE_MICROHTTPD

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

#define LIBRARY "libmicrohttpd.so.12"

/* What is called of it. */
#define FUNCTIONS(_)                   \
    _(MHD_start_daemon)                \
    _(MHD_stop_daemon)                 \
    _(MHD_get_daemon_info)             \
    _(MHD_create_response_from_buffer) \
    _(MHD_add_response_header)         \
    _(MHD_queue_response)              \
    _(MHD_destroy_response)

static struct {
#define POINTER(name) __typeof__(&name) name;
    FUNCTIONS(POINTER)
} mhd;

static bool load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW);
    bool found = library != NULL;

#define FIND(name)                                              \
    *(void **)&mhd.name = found ? dlsym(library, #name) : NULL; \
    found = found && mhd.name;
    FUNCTIONS(FIND)
    if (!found)
        command_complain("top: --prometheus: %s (a port is served by libmicrohttpd; a file needs "
                         "nothing)",
                         dlerror());
    return found;
}

static struct MHD_Response *metrics_of(const struct metrics *metrics)
{
    struct MHD_Response *response = NULL;
    struct ag_text text = {0};
    struct folders folders = {0};

    if (metrics->open(metrics->data, &folders) == STATUS_OK && metrics_render(&folders, &text))
        response =
            mhd.MHD_create_response_from_buffer(text.length, text.data, MHD_RESPMEM_MUST_COPY);
    if (response)
        (void)mhd.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, CONTENT_TYPE);
    folders_close(&folders);
    ag_text_finish(&text);
    return response;
}

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response)
{
    enum MHD_Result result =
        response ? mhd.MHD_queue_response(connection, status, response) : MHD_NO;

    if (response)
        mhd.MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_line(struct MHD_Connection *connection, unsigned status,
                                   const char *line)
{
    return queue(connection, status,
                 mhd.MHD_create_response_from_buffer(strlen(line), (void *)(uintptr_t)line,
                                                     MHD_RESPMEM_PERSISTENT));
}

/* A thread of the library calls it, for one connection at a time. */
static enum MHD_Result answer_connection(void *data, struct MHD_Connection *connection,
                                         const char *url, const char *method, const char *version,
                                         const char *upload,
                                         size_t *upload_size, /* NOLINT: their type */
                                         void **state)
{
    struct MHD_Response *response;

    (void)version, (void)upload, (void)upload_size, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_line(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (strcmp(url, "/metrics") != 0)
        return answer_line(connection, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n");
    response = metrics_of(data);
    if (!response)
        return answer_line(connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
                           "the counters cannot be read\n");
    return queue(connection, MHD_HTTP_OK, response);
}

static struct MHD_Daemon *start_daemon(const struct metrics *metrics,
                                       const struct metrics_address *address)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
    const struct sockaddr *where = address->is_v6 ? (void *)&v6 : (void *)&v4;

    memcpy(&v4.sin_addr, address->bytes, sizeof(v4.sin_addr));
    memcpy(&v6.sin6_addr, address->bytes, sizeof(v6.sin6_addr));
    return mhd.MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | (address->is_v6 ? MHD_USE_DUAL_STACK : 0), address->port,
        NULL, NULL, answer_connection, (void *)(uintptr_t)metrics, MHD_OPTION_SOCK_ADDR, where,
        MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_CONNECTION_LIMIT, 64u, MHD_OPTION_END);
}

int metrics_serve(const struct metrics *metrics, const struct metrics_address *address)
{
    const union MHD_DaemonInfo *info;
    struct MHD_Daemon *daemon;
    sigset_t ends;
    int signal;

    if (!load())
        return STATUS_FAILED;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &ends, NULL); /* of the library's thread, too */
    daemon = start_daemon(metrics, address);
    if (!daemon) {
        command_complain("top: --prometheus=%s: port %u cannot be listened on: %s", metrics->where,
                         address->port, strerror(errno));
        return STATUS_FAILED;
    }
    info = mhd.MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    printf("http://%s:%u/metrics\n", address->text, info ? info->port : address->port);
    (void)fflush(stdout);
    (void)sigwait(&ends, &signal);
    mhd.MHD_stop_daemon(daemon);
    return STATUS_OK;
}

#else

int metrics_serve(const struct metrics *metrics, const struct metrics_address *address)
{
    (void)address;
    command_complain("top: --prometheus=%s: this allograft was built without libmicrohttpd "
                     "(libmicrohttpd-dev), and serves no port; a file it can write",
                     metrics->where);
    return STATUS_FAILED;
}

#endif
