// The website of the documentation: `make docs-site` builds it from a copy of docs/ beside the directory of this file.
import { readFileSync } from 'node:fs'
import path from 'node:path'

const repository = 'https://github.com/evenkeel/evenkeel/blob/main/'
const rewrites = { 'README.md': 'index.md', 'proposals/README.md': 'proposals/index.md' }

// The sidebar is the tables of docs/README.md.
const sidebar = readFileSync(new URL('../docs/README.md', import.meta.url), 'utf8').split('\n## ').slice(1).map((section) => ({
  text: section.split('\n', 1)[0],
  items: section.split('\n').filter((row) => row.startsWith('| [')).flatMap((row) =>
    [...row.split('|')[1].matchAll(/\[([^\]]+)\]\(([^)]+)\)/g)].map(([, text, link]) => ({ text, link: '/' + (rewrites[link] ?? link) }))),
})).filter((section) => section.items.length)

// The anchors of GitHub, as in test/links.
const slugify = (title) => title.trim().toLowerCase().replace(/ /g, '-').replace(/[^-\p{L}\p{M}\p{N}_]/gu, '')

// Links to pages follow their new names, and links out of docs/ lead to the repository.
function links(md) {
  md.core.ruler.push('links', ({ tokens, env }) => {
    for (const token of tokens.flatMap((t) => t.children ?? [])) {
      const href = token.type === 'link_open' ? token.attrGet('href') : null
      if (!href || /^([a-z]+:|#)/.test(href)) continue
      const [file, anchor] = href.split('#')
      const target = path.posix.join(path.posix.dirname(env.relativePath), file)
      const to = target.endsWith('.md') && !target.startsWith('../') ? '/' + (rewrites[target] ?? target) : repository + path.posix.join('docs', target)
      token.attrSet('href', to + (anchor ? '#' + anchor : ''))
    }
  })
}

export default {
  title: 'evenkeel',
  description: 'Change the configuration of running kubelets through the Kubernetes API',
  srcDir: 'docs',
  rewrites,
  markdown: { anchor: { slugify }, config: links },
  themeConfig: {
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: 'https://github.com/evenkeel/evenkeel' }],
  },
}
