/* folder.c: lists and removes files of counters, and temporary folders: see folder.h. */
#include "tools/base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/complain.h"
#include "tools/base/list.h"

const char *folder_try_own(int *ret, char *path, size_t capacity)
{
    const char *setting = getenv("ALLOGRAFT_COUNTERS");
    int folder;

    if (!setting || !*setting || !strcmp(setting, "off"))
        setting = "auto";
    (void)ag_record_folder(setting, path, capacity);
    folder = ag_record_open_folder(setting, false);
    *ret = folder < 0 ? -1 : folder;
    if (folder == -EPERM)
        return "others than you can write to this folder";
    return folder < 0 && folder != -ENOENT ? strerror(-folder) : NULL;
}

int folder_open_own(int *ret, char *path, size_t capacity)
{
    const char *fault = folder_try_own(ret, path, capacity);

    if (fault)
        command_complain("%s: %s", path, fault);
    return fault ? STATUS_FAILED : STATUS_OK;
}

bool folders_add(struct folders *folders, int folder)
{
    int *list = list_grow(folders->list, folders->n, &folders->capacity, sizeof(*list));

    if (!list) {
        close(folder);
        return false;
    }
    folders->list = list;
    list[folders->n++] = folder;
    return true;
}

/* The folder of the user whose number its name says, closed to others, as the library makes it: in
 * /dev/shm anybody can make anything. -1: it is not. */
static int open_of_user(int memory, const char *name)
{
    char same[64];
    unsigned uid;
    struct stat st;
    int folder;

    if (sscanf(name, "allograft-%10u", &uid) != 1)
        return -1;
    snprintf(same, sizeof(same), "allograft-%u", uid);
    if (strcmp(name, same) != 0)
        return -1;
    folder = openat(memory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && !fstat(folder, &st) && st.st_uid == uid && !(st.st_mode & 077))
        return folder;
    if (folder >= 0)
        close(folder);
    return -1;
}

bool folders_add_all_users(struct folders *folders)
{
    DIR *memory = opendir("/dev/shm");
    const struct dirent *entry;
    bool good = true;

    while (memory && good && (entry = readdir(memory))) {
        int folder = open_of_user(dirfd(memory), entry->d_name);

        good = folder < 0 || folders_add(folders, folder);
    }
    if (memory)
        closedir(memory);
    return good;
}

void folders_close(struct folders *folders)
{
    for (size_t i = 0; i < folders->n; i++)
        close(folders->list[i]);
    free(folders->list);
    *folders = (struct folders){.n = 0};
}

/* Does folder_list() with these arguments return the file? */
static bool is_in_listing(int folder, const char *name, int pid, bool all)
{
    struct ag_record_owner owner;

    if (!ag_record_parse_name(name, &owner))
        return false;
    if (pid)
        return owner.pid == pid;
    return all || ag_record_file_state(folder, name) == AG_RECORD_DEAD;
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(b, a); /* names begin with the time in fixed width */
}

static int add_file_name(struct folder_files *files, const char *name)
{
    void *names = list_grow(files->names, files->n, &files->capacity, sizeof(*files->names));

    if (!names)
        return STATUS_FAILED;
    files->names = names;
    memcpy(files->names[files->n++], name, strlen(name) + 1); /* a name that was parsed fits */
    return STATUS_OK;
}

int folder_list(struct folder_files *files, int pid, bool all)
{
    DIR *directory = fdopendir(dup(files->folder));
    const struct dirent *entry;
    int status = STATUS_OK;

    if (!directory)
        return STATUS_FAILED;
    rewinddir(directory); /* dup() shares the position */
    while (status == STATUS_OK && (entry = readdir(directory))) {
        if (is_in_listing(files->folder, entry->d_name, pid, all))
            status = add_file_name(files, entry->d_name);
    }
    closedir(directory);
    if (files->n)
        qsort(files->names, files->n, sizeof(*files->names), newest_first);
    return status;
}

void folder_remove_if_dead(int folder, const char *name)
{
    if (ag_record_file_state(folder, name) == AG_RECORD_DEAD && unlinkat(folder, name, 0))
        command_complain("%s: %s", name, strerror(errno));
}

bool folder_make_temporary(const char *command, char *path, size_t capacity)
{
    const char *tmp = getenv("TMPDIR");
    char name[PATH_MAX];
    int length;

    if (!realpath(tmp && *tmp ? tmp : "/tmp", name))
        return false;
    length = snprintf(path, capacity, "%s/allograft-%s-XXXXXX", name, command);
    if (length < 0 || (size_t)length >= capacity) {
        errno = ENAMETOOLONG;
        return false;
    }
    return mkdtemp(path) != NULL;
}

void folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder)
        closedir(folder);
    (void)rmdir(path);
}
