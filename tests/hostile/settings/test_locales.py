# Programs that speak Turkish, where "I" is not a capital "i", and German, where the decimal point is a comma:
# settings mean the same, and reports are as they are in English.

import os
import re
import shutil
import subprocess
import tempfile
import unittest

from hostile import RUNTIME, Case, clean_environment, main, preloaded, program, run

TURKISH, TURKISH_OF_ONE_BYTE, GERMAN = 'tr_TR.UTF-8', 'tr_TR.ISO-8859-9', 'de_DE.ISO-8859-15'
LANGUAGES = (TURKISH, TURKISH_OF_ONE_BYTE, GERMAN)
COMMAND = os.environ['TEST_COMMAND']

# Every setting that is words or a size, in capitals.
CAPITALS = {'ALLOGRAFT_POLICY': 'NATIVE', 'ALLOGRAFT_LIMIT': '512MIB', 'ALLOGRAFT_CACHE': '1.5MIB',
            'ALLOGRAFT_RULES': 'SIZE>=1MIB:MANAGED,PREFER=DEVICE,PREFETCH=LAUNCH',
            'ALLOGRAFT_GRAPH': 'ALL', 'ALLOGRAFT_GRAPH_ITERATION': 'NVTX:step'}


class Locales(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix='locales-')
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for name in LANGUAGES:
            language, charset = name.split('.', 1)
            try:
                subprocess.run(['localedef', '-i', language, '-f', charset, os.path.join(cls.folder, name)],
                               check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            except OSError:
                pass
            if not os.path.isdir(os.path.join(cls.folder, name)):
                raise unittest.SkipTest('localedef cannot make %s here' % name)

    def spoken(self, language, settings, **more):
        settings = dict(settings, LOCPATH=self.folder, LC_ALL=language)
        result = preloaded([program('hostile_locale'), language], settings, **more)
        self.assertEqual(result.status, 0, result.out + result.err)
        return result

    def test_the_languages_are_what_they_are_for(self):
        for language in LANGUAGES:
            result = run([program('hostile_locale'), language], {'LOCPATH': self.folder})
            self.assertIn('the point: 0,5', result.out, result.err)
            if not RUNTIME: # a sanitizer's strcasecmp speaks English
                self.assertEqual('capital I: 0' in result.out, language == GERMAN)

    def test_settings_in_capitals(self):
        for language in LANGUAGES:
            result = self.spoken(language, CAPITALS)
            self.assertEqual(result.err, '')
            report = result.report()
            self.assertEqual(report['rules'][0]['hits'], 3)
            self.assertEqual(report['devices'][0]['placements']['managed']['allocs'], 3)

    def test_reports(self):
        for language in LANGUAGES:
            self.spoken(language, {}).report() # holds it against the schema
            text = self.spoken(language, {}, stats='stats.txt').files['stats.txt']
            self.assertRegex(text, r'\d\.\d\d MiB')
            self.assertEqual(re.findall(r'\d,\d', text), [])

    def test_the_command(self):
        env = dict(clean_environment(), LOCPATH=self.folder, LC_ALL=TURKISH, **CAPITALS)
        done = subprocess.run([COMMAND, 'options', '--check'], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == '__main__':
    main()
