package link

// Proxies are the proxies of a store with several addresses, as one Link: each method
// calls that of all of them.
type Proxies []*Proxy

// Addrs returns the host:port of each.
func (ps Proxies) Addrs() (addrs []string) {
	for _, p := range ps {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

func (ps Proxies) each(f func(*Proxy)) {
	for _, p := range ps {
		f(p)
	}
}

// Cut calls [Proxy.Cut].
func (ps Proxies) Cut() { ps.each((*Proxy).Cut) }

// Lose calls [Proxy.Lose].
func (ps Proxies) Lose() { ps.each((*Proxy).Lose) }

// DropReplies calls [Proxy.DropReplies].
func (ps Proxies) DropReplies(on bool) { ps.each(func(p *Proxy) { p.DropReplies(on) }) }

// Refuse calls [Proxy.Refuse].
func (ps Proxies) Refuse() { ps.each((*Proxy).Refuse) }

// Reset calls [Proxy.Reset].
func (ps Proxies) Reset() { ps.each((*Proxy).Reset) }

// Heal calls [Proxy.Heal].
func (ps Proxies) Heal() { ps.each((*Proxy).Heal) }

// Close calls [Proxy.Close].
func (ps Proxies) Close() { ps.each((*Proxy).Close) }
