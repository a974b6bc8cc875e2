# Completion of the command `allograft` for fish. The command itself says what a word may become
# (`allograft --complete`, see tools/line/command_line.h).

function __allograft_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l word $words[-1]

    for line in (command $words[1] --complete $words[2..-1] 2>/dev/null)
        set -l name (string replace -r '^\S+ ?' '' -- $line)
        switch $line
            case ':program*'
                complete -C(string join ' ' -- (string escape -- $words[(math $name + 2)..-2]) $word)
            case ':files*' ':folders*'
                set -l rest (string sub -s (math (string length -- $name) + 1) -- $word)
                for path in $rest*
                    if test -d $path
                        echo $name$path/
                    else if string match -q ':files*' $line
                        echo $name$path
                    end
                end
            case '*'
                echo $line
        end
    end
end

complete -c allograft -f -a '(__allograft_complete)'
